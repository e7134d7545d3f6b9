"""The other brokers: which are alive, which leads what, and how requests reach them."""
