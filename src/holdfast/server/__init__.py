"""The network edge: TCP connections that carry Kafka frames."""
