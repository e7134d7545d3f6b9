"""The list of all checkers, each of them a pure function for one anomaly.

Must never share code with what is checked, and never tolerate an anomaly silently: what is allowed
is written down in the function that checks it.
"""

from collections.abc import Callable, Sequence

from holdfast.verify.checkers import (
    fates,
    groups,
    lanes,
    offsets,
    order,
    outputs,
    owners,
    visibility,
    watermarks,
    writes,
)
from holdfast.verify.checkers.knowledge import Knowledge
from holdfast.verify.checkers.violation import Anomaly, Violation
from holdfast.verify.checkers.void import void_reason
from holdfast.verify.history import History

Checker = Callable[[Knowledge], list[Violation]]


def crash(knowledge: Knowledge) -> list[Violation]:
    """Find unhandled exceptions, and invariants that a process found broken."""
    return [Violation(Anomaly.CRASH, text) for text in knowledge.history.crashes]


CHECKERS: Sequence[Checker] = (
    crash,
    writes.lost_write,
    writes.two_values,
    writes.phantom,
    writes.doubled,
    writes.ack_moved,
    writes.definite_error_appears,
    watermarks.watermark_back,
    watermarks.log_start_back,
    watermarks.log_start_unasked,
    visibility.hidden,
    visibility.gap,
    visibility.above_watermark,
    visibility.empty_reads,
    order.producer_order,
    order.batch_torn,
    order.real_time_order,
    order.sequence_refused,
    order.gap_called,
    lanes.lane_hole,
    lanes.chain_broken,
    lanes.claim_back,
    lanes.ack_not_durable,
    lanes.read_not_durable,
    owners.answered_without_claim,
    owners.answered_after_release,
    owners.stale_answer,
    owners.served_too_early,
    owners.owners_overlap,
    watermarks.stable_back,
    watermarks.stable_stuck,
    groups.not_owner_commit,
    groups.owner_refused,
    groups.ownership_overlap,
    groups.told_anothers,
    groups.assignment_not_durable,
    offsets.commit_not_durable,
    offsets.offset_not_durable,
    offsets.committed_back,
    fates.aborted_read,
    fates.torn,
    fates.committed_lost,
    fates.zombie,
    outputs.output_doubled,
    outputs.output_lost,
)


def check(history: History) -> list[Violation]:
    """Return everything that is wrong with a history."""
    knowledge = Knowledge(history)
    return [violation for checker in CHECKERS for violation in checker(knowledge)]


__all__ = ["CHECKERS", "Checker", "Anomaly", "Violation", "check", "void_reason"]
