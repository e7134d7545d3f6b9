"""State by key in immutable state runs, pinned by the ledger: dedup, aggregates, timers."""
