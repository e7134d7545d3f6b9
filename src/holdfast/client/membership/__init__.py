"""A member of a consumer group: of the consumer protocol (KIP-848), or of the classic one."""
