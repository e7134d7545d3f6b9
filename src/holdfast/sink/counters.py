"""Counters of what a sink has done so far: plain numbers that only go up.

Owns nothing else. Every part of a sink adds to the same instance.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since this member started."""

    records_landed: int = 0
    bytes_fetched: int = 0
    bytes_landed: int = 0
    objects_landed: int = 0
    objects_found: int = 0
    bad_records: int = 0
    unreadable_batches: int = 0
    batches_abandoned: int = 0
    commits: int = 0
    commits_withheld: int = 0
    rebalances: int = 0
    last_landed: str | None = None
