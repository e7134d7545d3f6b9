"""The sink with Spark tasks as its members."""
