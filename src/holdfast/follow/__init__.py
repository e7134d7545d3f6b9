"""Read a store's log without a broker: what topics there are, how far they go, where bytes are."""
