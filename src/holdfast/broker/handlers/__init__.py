"""One file for each Kafka API; its header says the versions served and the deviations from Kafka."""
