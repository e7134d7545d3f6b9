"""Consumer groups: who is in a group, who owns which partition, how far the group has come."""
