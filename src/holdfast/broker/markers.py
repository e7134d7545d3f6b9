"""Write the marker that ends a transaction into a partition that this broker leads.

Owns the step from a decided marker to a durable one: offset and leader epoch are stamped as for a
produced batch. Must never decide that a transaction ends: that is its coordinator's. A coordinator
lets the next transaction of a producer begin only when every marker of the last one is written.
"""

from holdfast.broker.broker import Led
from holdfast.broker.leadership import prove_claim
from holdfast.environment import Environment
from holdfast.errors import Fenced, HoldfastError
from holdfast.log.append import MarkerAccepted, Refused, decide_marker
from holdfast.records.stamp import stamp

FENCED = "NOT_LEADER_OR_FOLLOWER"
STORAGE = "KAFKA_STORAGE_ERROR"


async def write_marker(
    led: Led,
    environment: Environment,
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
) -> Refused | None:
    """End a transaction on one partition; None once that is durable. May be repeated at will.

    It is decided before the first wait, so markers of one task are decided in the order of calls.
    """
    appender = led.lane.appender
    if not appender.is_open:
        return Refused(FENCED, str(appender.failure or "the lane is closing"))
    decision = decide_marker(
        led.lane.log_of(led.partition),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        now_ms=environment.now_ms(),
    )
    if isinstance(decision, MarkerAccepted):
        fact, record_batch = decision.fact, decision.record_batch
        stamp(record_batch, base_offset=fact.base_offset, leader_epoch=led.lane.leader_epoch)
        appender.add(fact, record_batch)
    try:
        await appender.flush()
    except Fenced as error:
        return Refused(FENCED, str(error))
    except HoldfastError as error:
        return Refused(STORAGE, str(error))
    if isinstance(decision, MarkerAccepted):
        return None
    # A newer owner may know of an open transaction: that there is nothing to end, and every
    # refusal, counts only under a claim that is known to be the newest.
    unproven = await prove_claim(led.lane)
    if unproven is not None:
        return Refused(unproven.name, "this broker's claim could not be proved")
    return decision if isinstance(decision, Refused) else None
