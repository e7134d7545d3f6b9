"""A small Kafka client: administration, fetch, produce, transactions and group membership."""
