"""Handlers of requests between brokers. ApiVersions does not list them, nor do Kafka's clients know
them."""
