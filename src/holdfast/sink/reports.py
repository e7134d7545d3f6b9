"""Statuses of members in other processes: encoded as lines, and summed up into one.

Pure. Owns the form of the line and the sum. Counters of members that have ended stay in the sum;
their partitions and memory do not.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import msgspec

from holdfast.protocol.consumer_protocol import TopicPartition
from holdfast.sink.status import PartitionStatus, SinkStatus

COUNTERS = (
    *("records_landed", "bytes_fetched", "bytes_landed", "objects_landed", "objects_found"),
    *("bad_records", "unreadable_batches", "batches_abandoned", "rebalances"),
    *("commits", "commits_withheld"),
)


class _Row(msgspec.Struct, array_like=True):
    topic: str
    partition: int
    status: PartitionStatus


class MemberReport(msgspec.Struct):
    """One line of a member: its status, or why it cannot continue."""

    member: int
    status: dict[str, Any] = {}
    partitions: list[_Row] = []
    failed: str | None = None
    must_look: bool = False
    """True if a person must look: trying again would harm data, or not help."""


def line_of(member: int, status: SinkStatus) -> bytes:
    """Encode a status as a line."""
    plain = {
        field.name: getattr(status, field.name)
        for field in fields(status)
        if field.name != "partitions"
    }
    rows = [_Row(*where, part) for where, part in status.partitions.items()]
    return _line(MemberReport(member=member, status=plain, partitions=rows))


def failure_line(member: int, reason: str, *, must_look: bool) -> bytes:
    """Encode the last line of a member that cannot continue."""
    return _line(MemberReport(member=member, failed=reason, must_look=must_look))


def _line(report: MemberReport) -> bytes:
    return msgspec.json.encode(report) + b"\n"


def read_line(line: bytes) -> MemberReport:
    return msgspec.json.decode(line, type=MemberReport)


def status_in(report: MemberReport) -> SinkStatus:
    """Return the status in a report."""
    partitions = {TopicPartition(row.topic, row.partition): row.status for row in report.partitions}
    return replace(msgspec.convert(report.status, SinkStatus), partitions=partitions)


def summed(running: Iterable[SinkStatus], ended: Iterable[SinkStatus]) -> SinkStatus:
    """Sum up all members into one status."""
    now = list(running)
    everyone = [*now, *ended]
    partitions: dict[TopicPartition, PartitionStatus] = {}
    for status in now:
        partitions |= status.partitions
    states = {status.state for status in now}
    return SinkStatus(
        state=states.pop() if len(states) == 1 else ("reconciling" if now else "joining"),
        member_id=f"{len(now)} members",
        epoch=max((status.epoch for status in now), default=0),
        partitions=partitions,
        held_bytes=sum(status.held_bytes for status in now),
        held_bytes_peak=max((status.held_bytes_peak for status in everyone), default=0),
        fetch_paused=any(status.fetch_paused for status in now),
        last_landed=_last(status.last_landed for status in now),
        store_problem=_last(status.store_problem for status in now),
        store_problem_seconds=max((status.store_problem_seconds for status in now), default=0.0),
        broker_problem=_last(status.broker_problem for status in now),
        **{name: sum(getattr(status, name) for status in everyone) for name in COUNTERS},
    )


def _last(texts: Iterable[str | None]) -> str | None:
    found = [text for text in texts if text is not None]
    return found[-1] if found else None
