"""One partition's log: index, producers, appends, reads, retention, segments."""
