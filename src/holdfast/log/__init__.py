"""The logs of partitions: index, producers, appends, reads, retention, segments."""
