"""Micro-batches that commit to a ledger: tasks, state, backfill, compaction."""
