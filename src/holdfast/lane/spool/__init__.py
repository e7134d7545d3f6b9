"""Records that are acknowledged from a local disk before they are in the store."""
