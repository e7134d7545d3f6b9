"""Kafka's wire protocol as pure code: message codecs, frames, the state of a connection."""
