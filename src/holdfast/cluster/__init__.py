"""The state of the cluster: brokers, topics, configurations, and which broker leads which lane."""
