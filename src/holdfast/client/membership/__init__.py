"""A member of a consumer group, for the consumer protocol (KIP-848) and the classic one."""
