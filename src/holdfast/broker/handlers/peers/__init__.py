"""Handlers of requests that brokers send to each other. They are not part of Kafka."""
