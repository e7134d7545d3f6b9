"""A small Kafka client, for planning, fetching and administration."""
