"""What a store holds: walking lanes, auditing them, and surveying a whole store."""
