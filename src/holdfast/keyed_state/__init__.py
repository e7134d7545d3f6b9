"""State by key in immutable runs, pinned by the ledger: dedup, aggregates, timers."""
