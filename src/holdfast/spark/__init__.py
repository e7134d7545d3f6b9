"""Holdfast on Spark: the source, stateful builders, sinks and jobs."""
