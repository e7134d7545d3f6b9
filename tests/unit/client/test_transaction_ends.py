"""What a client says of the end of a transaction when answers are lost: refused, or unknown."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.client.scripted_broker import Answer, HangUp, ScriptedBroker

from holdfast.client.cluster import Cluster
from holdfast.client.refusals import OutcomeUnknown, RequestRefused
from holdfast.client.transactions import FENCED, begin_transaction
from holdfast.environment import SystemEnvironment
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.message import Message
from holdfast.protocol.messages.end_txn import EndTxnResponse
from holdfast.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from holdfast.protocol.messages.init_producer_id import InitProducerIdResponse

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


def ended(ends: Sequence[ErrorCode | None], inits: Sequence[ErrorCode] = (ErrorCode.NONE,)) -> int:
    """Commit against a broker that answers so (None: it hangs up); how often it was asked."""
    end_answers, init_answers = iter(ends), iter(inits)

    def script(key: ApiKey, request: Message) -> Answer | None:
        match key:
            case ApiKey.FIND_COORDINATOR:
                return FindCoordinatorResponse(coordinators=[Coordinator(key="t", node_id=7)])
            case ApiKey.INIT_PRODUCER_ID:
                code = next(init_answers)
                return InitProducerIdResponse(error_code=code, producer_id=5, producer_epoch=1)
            case ApiKey.END_TXN:
                code = next(end_answers)
                return HangUp() if code is None else EndTxnResponse(error_code=code)
            case _:
                return None

    async def main() -> int:
        async with (
            ScriptedBroker(script) as broker,
            Cluster(
                broker.bootstrap, environment=SystemEnvironment(), deadline_ms=2_000
            ) as cluster,
        ):
            transaction = await begin_transaction(cluster, "t", timeout_ms=1_000)
            await transaction.commit()
            assert (ApiKey.END_TXN, 4) in broker.versions
            return broker.times_asked(ApiKey.END_TXN)

    return asyncio.run(main())


def test_a_takeover_and_an_end_wait_for_the_transaction_before():
    assert ended([BUSY, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE], [BUSY, ErrorCode.NONE]) == 3


def test_an_end_that_is_refused_at_once_surely_did_not_happen():
    with pytest.raises(RequestRefused) as refused:
        ended([ErrorCode.PRODUCER_FENCED])
    assert refused.value.code in FENCED


def test_an_end_that_is_refused_after_a_lost_answer_may_have_happened():
    with pytest.raises(OutcomeUnknown):
        ended([None, ErrorCode.INVALID_PRODUCER_EPOCH])


def test_an_end_that_nobody_answers_may_have_happened():
    with pytest.raises(OutcomeUnknown):
        ended([None] * 50)
