"""Hostile load: many well-formed or half-formed requests, beside a client that is timed."""
