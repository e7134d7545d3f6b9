"""The shell around the pure core of consumer groups: lanes, lists, matching of names."""
