"""Handlers of requests to a group coordinator: classic groups, KIP-848 groups, commits."""
