"""Holdfast: a Kafka-compatible log on object storage that stays correct at every hand-off."""

__version__ = "0.1.0"
