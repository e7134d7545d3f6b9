"""What a sink says of itself at one moment: for the terminal, for metrics, and for health.

Pure. Owns the vocabulary. A snapshot is a value: whoever shows it must never ask the worker again.
"""

from dataclasses import dataclass, field

from holdfast.protocol.consumer_protocol import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition that this member owns."""

    position: int
    """The next offset to fetch."""
    landed: int | None
    """The end of its chain as this member knows it."""
    committed: int | None
    log_end: int | None
    """The high watermark (or last stable offset) of the last answer."""
    open_records: int
    open_bytes: int
    uploads: int
    """Sealed batches of it that have not landed."""
    problem: str | None = None

    @property
    def lag(self) -> int | None:
        """Records of the log that have not landed."""
        if self.log_end is None or self.landed is None:
            return None
        return max(0, self.log_end - self.landed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """The whole member. Counters only go up while it runs."""

    state: str
    """joining, stable, reconciling, fenced, stopping."""
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
    """Objects of others that were followed."""
    bad_records: int = 0
    unreadable_batches: int = 0
    """Record batches of the log that cannot be read; each is one of the bad records."""
    batches_abandoned: int = 0
    commits: int = 0
    commits_withheld: int = 0
    """Completions that came after the partition was lost: never sent."""
    rebalances: int = 0
    held_bytes: int = 0
    held_bytes_peak: int = 0
    fetch_paused: bool = False
    last_landed: str | None = None
    """The key of the newest object."""
    store_problem: str | None = None
    """Why the store does not take objects now, with since when; None where it does."""
    store_problem_seconds: float = 0.0
    broker_problem: str | None = None

    @property
    def problems(self) -> list[str]:
        """What is wrong now, for people."""
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
        """Records that have not landed, of the partitions that it is known of."""
        known = [part.lag for part in self.partitions.values() if part.lag is not None]
        return sum(known) if known else None
