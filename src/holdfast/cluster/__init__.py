"""What the control lane says: brokers, topics, configurations."""
