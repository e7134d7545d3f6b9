"""Seeds and incidents that found a bug, each as a test with its name."""
