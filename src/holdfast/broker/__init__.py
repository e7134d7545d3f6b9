"""Requests in, replies out: dispatch, waiting, and one handler for each Kafka API."""
