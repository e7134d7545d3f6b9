"""The state that a job continues from: what the newest ledger entry pins, or why it is refused.

Pure. Owns the comparison of a job with the step that made the state. Must never make state, nor
look into a store.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.keyed_state.pinned import Pinned, decode_pinned, refusal
from holdfast.landing.ledger_entry import Entry
from holdfast.spark.ledger.job import Dedup, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRefused:
    """The job does not match the ledger's state; the message names the remedy."""

    message: str


def state_before(job: Job, head: Entry | None, schema: Any) -> Pinned | StateRefused | None:
    """Return the state that the newest entry pins for a job; None if there is none yet.

    `schema` is the Arrow schema of the rows that come in. If it is not known yet (None), only a
    dedup is compared with the step that made the state.
    """
    operation, sink_id = job.operation, job.output.sink_id
    if head is None:
        return None
    if operation is None:
        if not head.state:
            return None
        return StateRefused(
            message=f"sink {sink_id}: earlier runs had a stateful step, and this pipeline has none:"
            " change the pipeline back, or give it a new sink_id"
        )
    if not head.state:
        return StateRefused(
            message=f"sink {sink_id}: {head.n + 1} micro-batches were committed without a stateful"
            " step, so their keys are unknown to the one in this pipeline: give it a new sink_id"
        )
    pinned = decode_pinned(head.state)
    if schema is None and not isinstance(operation, Dedup):
        return pinned
    problem = refusal(pinned, operation.operator(schema), sink_id=sink_id)
    return pinned if problem is None else StateRefused(message=problem)
