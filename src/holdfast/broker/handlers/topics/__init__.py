"""Handlers of requests that change or describe topics and configurations."""
