"""Stores that earlier releases wrote, and how they were made."""
