"""Consumer groups: their members, the owner of each partition, and committed offsets."""
