"""Lanes: sequences of numbered immutable objects that one writer at a time extends."""
