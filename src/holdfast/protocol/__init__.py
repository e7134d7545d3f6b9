"""Kafka messages to bytes and back; bytes in, requests out, replies in order. Pure."""
