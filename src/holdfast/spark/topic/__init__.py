"""The sink that writes the rows of a micro-batch to a topic, exactly once."""
