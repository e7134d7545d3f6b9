"""A consumer group that lands topics in object storage, each record in exactly one object."""
