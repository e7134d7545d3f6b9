"""Handlers of requests to a transaction coordinator, and about producers."""
