"""Sessions, Java, Python workers and executors."""
