"""Numbered immutable objects that one writer at a time extends."""
