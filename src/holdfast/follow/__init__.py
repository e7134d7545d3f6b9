"""Reading a store's log without a broker: its topics, their offsets, and where the bytes are."""
