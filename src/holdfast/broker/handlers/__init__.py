"""The handlers: one file for each Kafka API. Its docstring names the deviations from Kafka."""
