"""The deterministic simulation: real brokers on virtual time, with faults drawn from a seed."""
