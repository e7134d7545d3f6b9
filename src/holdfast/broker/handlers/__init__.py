"""One file for each Kafka API; its header says what deviates from Kafka."""
