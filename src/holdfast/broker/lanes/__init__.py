"""The lanes that a broker serves: claiming, serving, acknowledging from disk, giving up."""
