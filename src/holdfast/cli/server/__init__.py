"""`holdfast serve`: its options, its config file, and the process around the broker."""
