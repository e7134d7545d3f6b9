"""Spark's source `holdfast`: planning, reading from brokers, reading from the store."""
