"""The running broker as a process: killed, stopped, cut off from its store, and read back cold."""
