"""The simulated clients: producers, consumers, group members, transactional producers."""
