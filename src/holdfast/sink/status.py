"""The status of a sink at one moment: for the terminal, for metrics, and for health.

Pure. Owns the vocabulary. A status is a value: code that shows it must never ask the worker again.
"""

from dataclasses import dataclass, field

from holdfast.protocol.consumer_protocol import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The status of one partition that this member owns."""

    position: int
    """The next offset to fetch."""
    landed: int | None
    """The offset below which every record has landed, as this member knows it."""
    committed: int | None
    log_end: int | None
    """The high watermark (or last stable offset) in the last fetch response."""
    open_records: int
    open_bytes: int
    uploads: int
    """Number of sealed batches that have not landed."""
    problem: str | None = None

    @property
    def lag(self) -> int | None:
        """Number of records in the log that have not landed."""
        if self.log_end is None or self.landed is None:
            return None
        return max(0, self.log_end - self.landed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """The status of a whole member. Counters only go up while it runs."""

    state: str
    """One of joining, stable, reconciling, fenced, stopping."""
    member_id: str
    epoch: int
    partitions: dict[TopicPartition, PartitionStatus] = field(
        default_factory=dict[TopicPartition, PartitionStatus]
    )
    records_landed: int = 0
    bytes_fetched: int = 0
    bytes_landed: int = 0
    objects_landed: int = 0
    objects_found: int = 0
    """Number of objects of other members that this one found in its chains."""
    bad_records: int = 0
    unreadable_batches: int = 0
    """Number of record batches that cannot be read; each counts as one bad record."""
    batches_abandoned: int = 0
    commits: int = 0
    commits_withheld: int = 0
    """Number of commits that were never sent, because the partition was lost before."""
    rebalances: int = 0
    held_bytes: int = 0
    held_bytes_peak: int = 0
    fetch_paused: bool = False
    last_landed: str | None = None
    """The key of the newest object that landed."""
    store_problem: str | None = None
    """Why the store does not answer now; None if it does."""
    store_problem_seconds: float = 0.0
    broker_problem: str | None = None

    @property
    def problems(self) -> list[str]:
        """Texts for people about what is wrong now."""
        found = [f"store: {self.store_problem}"] if self.store_problem is not None else []
        if self.broker_problem is not None:
            found.append(f"broker: {self.broker_problem}")
        for where, partition in sorted(self.partitions.items()):
            if partition.problem is not None:
                found.append(f"{where.topic}-{where.partition}: {partition.problem}")
        return found

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def lag(self) -> int | None:
        """Number of records that have not landed, over the partitions whose lag is known."""
        known = [part.lag for part in self.partitions.values() if part.lag is not None]
        return sum(known) if known else None
