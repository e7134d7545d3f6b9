"""The broker: request dispatch, lanes, cluster membership, and one handler for each Kafka API."""
