"""The description of a sink's state in a ledger entry: its exact state runs and their operator.

Pure. Owns the description, the name of a run, the bucket of a hash, and the event-time watermark.
State is what the newest ledger entry names and nothing else. A run that no entry names does not
count, even if its bytes exist. Must never look into a run, nor into the store.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.errors import CallError

BUCKETS_MAX = 65_536
TIME_MIN = -(2**63)
"""A time before every event time. As a horizon it means that nothing expires."""
TIME_MAX = 2**63 - 1
SPAN_MS_MAX = 2**61
"""The longest window. The sum of two still fits into 64 bits."""

Hashes = npt.NDArray[np.uint64]
Times = npt.NDArray[np.int64]

_LEGAL_PART = re.compile(r"[a-zA-Z0-9._-]{1,120}")
_RUN_NAME = re.compile(r"state/([^/]+)/(\d{5})/(\d{20})-([^/]+)")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable state run, as the ledger describes it."""

    name: str
    """The object's key in the store, made of sink id, bucket, ledger number and attempt."""
    rows: int
    bytes: int
    crc: int
    """CRC-32C of the body. Another body under the same name is not this run."""
    time_min_ms: int
    time_median_ms: int
    """A time that at least half of the rows do not exceed."""
    time_max_ms: int


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """The operator that keeps this state, with everything that the state's meaning depends on."""

    kind: str
    parameters: dict[str, Any]
    """Plain JSON: key columns, window, aggregates, schema."""


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of a sink after one micro-batch, as the ledger entry holds it."""

    operator: Operator
    hash_seed: int
    runs: tuple[tuple[RunInfo, ...], ...]
    """The runs of each bucket, oldest first."""
    event_time_watermark_ms: int | None = None

    @property
    def buckets(self) -> int:
        return len(self.runs)

    def with_runs(
        self,
        changed: Mapping[int, Iterable[RunInfo]],
        *,
        event_time_watermark_ms: int | None,
    ) -> "Pinned":
        """Return the state after a micro-batch that changed the runs of these buckets."""
        runs = list(self.runs)
        for bucket, infos in changed.items():
            runs[bucket] = tuple(infos)
        return msgspec.structs.replace(
            self, runs=tuple(runs), event_time_watermark_ms=event_time_watermark_ms
        )


def nothing_pinned(operator: Operator, *, buckets: int, hash_seed: int) -> Pinned:
    """Return the state before the first micro-batch. It fixes the number of buckets."""
    if not 1 <= buckets <= BUCKETS_MAX:
        raise CallError(f"{buckets} state buckets are not possible: use 1 to {BUCKETS_MAX}")
    return Pinned(operator=operator, hash_seed=hash_seed, runs=((),) * buckets)


def encode_pinned(pinned: Pinned) -> bytes:
    """Return canonical JSON: equal states give equal bytes."""
    return msgspec.json.encode(pinned, order="deterministic")


def decode_pinned(data: bytes | str) -> Pinned:
    return msgspec.json.decode(data, type=Pinned)


def refusal(pinned: Pinned, operator: Operator, *, sink_id: str) -> str | None:
    """Return why a pipeline may not continue from this state, or None if it may."""
    before = pinned.operator
    if before.kind != operator.kind:
        return (
            f"the state of sink {sink_id!r} was made by {before.kind!r}, but the pipeline now has"
            f" {operator.kind!r}: {_REMEDY}"
        )
    ours, theirs = _plain(operator.parameters), _plain(before.parameters)
    changed = [
        f"{name} was {theirs.get(name)!r} and is now {ours.get(name)!r}"
        for name in sorted(set(ours) | set(theirs))
        if ours.get(name) != theirs.get(name)
    ]
    if not changed:
        return None
    return (
        f"the state of sink {sink_id!r} was made by {before.kind!r} with other settings:"
        f" {'; '.join(changed)}: {_REMEDY}"
    )


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as they come back from the ledger: a tuple has become a list."""
    return msgspec.json.decode(msgspec.json.encode(parameters), type=dict[str, Any])


_REMEDY = "put the pipeline back as it was, or give it a new sink id and start from the log"


def next_watermark(
    before_ms: int | None, event_time_max_ms: int | None, *, now_ms: int, allowance_ms: int
) -> int | None:
    """Return the event-time watermark after a micro-batch: the latest event time, never going back.

    A record from a wrong clock moves it to at most `allowance_ms` past the wall clock of the
    micro-batch, so that one bad record cannot expire everything.
    """
    if event_time_max_ms is None:
        return before_ms
    bounded = min(event_time_max_ms, now_ms + allowance_ms)
    return bounded if before_ms is None else max(before_ms, bounded)


def bucket_of(low: Hashes, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each hash, from its low half.

    Inside a bucket the high half stays uniformly distributed.
    """
    return (low % np.uint64(buckets)).astype(np.int64)


def run_name(sink_id: str, bucket: int, number: int, attempt: str) -> str:
    """Return the key of the run that one attempt at ledger number `number` writes."""
    for what, text in (("sink id", sink_id), ("attempt", attempt)):
        if not _LEGAL_PART.fullmatch(text) or text in (".", ".."):
            raise CallError(
                f"the {what} {text[:80]!r} cannot be part of an object key: use only a-z, A-Z, 0-9,"
                " '.', '_' and '-'"
            )
    return f"state/{sink_id}/{bucket:05d}/{number:020d}-{attempt}"


def unpinned(names: Iterable[str], pinned: Pinned, *, before_number: int) -> list[str]:
    """Return those of the listed runs of this sink that no reader needs, now or later.

    Runs of `before_number` and later may belong to a micro-batch that is about to be committed.
    """
    needed = {info.name for infos in pinned.runs for info in infos}
    found: list[str] = []
    for name in names:
        match = _RUN_NAME.fullmatch(name)
        if match is not None and int(match.group(3)) < before_number and name not in needed:
            found.append(name)
    return found
