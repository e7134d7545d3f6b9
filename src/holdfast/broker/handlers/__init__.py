"""The handlers: one file for each API. Its declaration `API` names the deviations from Kafka."""
