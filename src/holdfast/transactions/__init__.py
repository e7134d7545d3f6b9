"""Transactions: who may write under a transactional id, what is in a transaction, how it ends."""
