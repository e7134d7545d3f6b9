"""Transactions: which producer has a transactional id, what its transaction holds, how it ends."""
