"""The other brokers: who is there, who leads what, and how requests reach them."""
