"""The transaction coordinator's decisions, one fact at a time."""

from uuid import UUID

import msgspec
import pytest

from holdfast.identifiers import PartitionId
from holdfast.protocol.api import ErrorCode
from holdfast.transactions.decide import (
    EPOCH_MAX,
    NOBODY,
    AbortFirst,
    Ending,
    FreshIdNeeded,
    GoOn,
    Initialised,
    ProducerIdAndEpoch,
    TransactionRules,
    abort,
    end,
    expire,
    extend,
    init_producer,
    is_overdue,
    verify,
)
from holdfast.transactions.facts import (
    ProducerInitialised,
    TransactionEnded,
    TransactionExtended,
    TransactionFact,
)
from holdfast.transactions.state import (
    StoredTransactions,
    Transaction,
    TransactionPhase,
    TransactionsState,
    restored_transactions,
    stored_transactions,
)

ID = "billing"
RULES = TransactionRules()
TIMEOUT_MS = 60_000
P0 = PartitionId(UUID(int=1), 0)
P1 = PartitionId(UUID(int=1), 1)


class World:
    """One transactional id; facts are durable at once."""

    def __init__(self) -> None:
        self.state = TransactionsState()
        self.facts: list[TransactionFact] = []
        self.now_ms = 1_000_000
        self.fresh_id = 500

    @property
    def known(self) -> Transaction | None:
        return self.state.transactions.get(ID)

    def there(self) -> Transaction:
        assert self.known is not None
        return self.known

    def take(self, fact: TransactionFact) -> None:
        self.facts.append(fact)
        self.state.apply(fact)
        self.state.publish(fact)

    def init(self, claimed: ProducerIdAndEpoch = NOBODY, timeout_ms: int = TIMEOUT_MS) -> object:
        fresh: int | None = None
        decided = None
        for _ in range(2):
            decided = init_producer(
                self.known, ID, timeout_ms, claimed, RULES, fresh_id=fresh, now_ms=self.now_ms
            )
            if not isinstance(decided, FreshIdNeeded):
                break
            fresh, self.fresh_id = self.fresh_id, self.fresh_id + 1
        if isinstance(decided, Initialised | AbortFirst):
            self.take(decided.fact)
        if isinstance(decided, Initialised):
            return ProducerIdAndEpoch(decided.fact.producer_id, decided.fact.producer_epoch)
        return decided.producer if isinstance(decided, GoOn) else decided

    def producer(self) -> ProducerIdAndEpoch:
        got = self.init()
        assert isinstance(got, ProducerIdAndEpoch)
        return got

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: PartitionId, group: str | None = None
    ) -> object:
        groups = [group] if group is not None else []
        decided = extend(
            self.known, producer, partitions=partitions, groups=groups, now_ms=self.now_ms
        )
        if isinstance(decided, TransactionExtended):
            self.take(decided)
        return decided

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool, bumps: bool = True) -> object:
        decided = end(
            self.known,
            producer,
            committed=committed,
            bumps_epoch=bumps,
            fresh_id=self.fresh_id,
            now_ms=self.now_ms,
        )
        if isinstance(decided, Ending):
            self.take(decided.fact)
            return decided.producer
        return decided.producer if isinstance(decided, GoOn) else decided

    def complete(self) -> None:
        self.take(TransactionEnded(ID, self.now_ms))


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_transactional_id_gets_a_new_producer_id(world: World):
    assert world.producer() == ProducerIdAndEpoch(500, 0)
    assert world.there().phase is TransactionPhase.EMPTY


def test_a_producer_that_takes_over_fences_the_one_before(world: World):
    first = world.producer()
    second = world.producer()
    assert second == ProducerIdAndEpoch(500, 1)
    assert world.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert isinstance(world.add(second, P0), TransactionExtended)


def test_an_open_transaction_is_aborted_before_somebody_takes_over(world: World):
    zombie = world.producer()
    world.add(zombie, P0)
    assert isinstance(world.init(), AbortFirst)
    assert world.there().phase is TransactionPhase.PREPARE_ABORT
    assert world.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    marker = world.there().marker
    assert marker is not None
    assert (marker.producer_epoch, marker.committed) == (1, False)
    world.complete()
    assert world.producer() == ProducerIdAndEpoch(500, 2)
    assert world.end(zombie, committed=True) is ErrorCode.PRODUCER_FENCED
    assert world.end(zombie, committed=False) is ErrorCode.PRODUCER_FENCED
    assert world.init(zombie) is ErrorCode.PRODUCER_FENCED


def test_each_end_moves_the_epoch_up_so_that_late_requests_reach_no_later_transaction(
    world: World,
):
    first = world.producer()
    world.add(first, P0)
    second = world.end(first, committed=True)
    assert second == ProducerIdAndEpoch(500, 1)
    world.complete()
    assert world.there().phase is TransactionPhase.COMPLETE_COMMIT
    assert world.add(first, P1) is ErrorCode.PRODUCER_FENCED
    assert isinstance(world.add(ProducerIdAndEpoch(500, 1), P1), TransactionExtended)
    assert world.there().partitions == {P1}


def test_old_clients_keep_their_epoch(world: World):
    producer = world.producer()
    world.add(producer, P0)
    assert world.end(producer, committed=True, bumps=False) == producer
    marker = world.there().marker
    assert marker is not None
    assert marker.producer_epoch == producer.producer_epoch
    world.complete()
    assert world.end(producer, committed=True, bumps=False) == producer
    assert world.end(producer, committed=False, bumps=False) is ErrorCode.INVALID_TXN_STATE


def test_an_end_that_is_sent_again_is_answered_as_the_first_time(world: World):
    first = world.producer()
    world.add(first, P0)
    second = world.end(first, committed=True)
    assert world.end(first, committed=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(first, committed=False) is ErrorCode.INVALID_TXN_STATE
    world.complete()
    assert world.end(first, committed=True) == second
    assert world.end(first, committed=False) is ErrorCode.INVALID_TXN_STATE


def test_nothing_joins_a_transaction_that_is_ending(world: World):
    producer = world.producer()
    world.add(producer, P0)
    after = world.end(producer, committed=True)
    assert isinstance(after, ProducerIdAndEpoch)
    assert world.add(after, P1) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert verify(world.known, after, P0) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_records_are_verified_against_the_open_transaction(world: World):
    producer = world.producer()
    assert verify(world.known, producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    world.add(producer, P0)
    assert verify(world.known, producer, P0) is None
    assert verify(world.known, producer, P1) is ErrorCode.TRANSACTION_ABORTABLE
    assert verify(world.known, ProducerIdAndEpoch(500, 9), P0) is ErrorCode.PRODUCER_FENCED
    assert (
        verify(world.known, ProducerIdAndEpoch(9, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    assert verify(None, producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_what_is_in_a_transaction_is_added_once(world: World):
    producer = world.producer()
    world.add(producer, P0, group="g")
    assert world.add(producer, P0, group="g") is None
    world.add(producer, P0, P1)
    assert world.there().partitions == {P0, P1}
    assert world.there().groups == {"g"}


def test_a_commit_without_a_transaction_is_refused_and_an_abort_fences(world: World):
    producer = world.producer()
    assert world.end(producer, committed=True) is ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, committed=True, bumps=False) is ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, committed=False) == ProducerIdAndEpoch(500, 1)


def test_a_producer_that_had_an_error_goes_on_by_what_it_was(world: World):
    """KIP-360: the same request, sent again, gives the same epoch; an older one is fenced."""
    first = world.producer()
    second = world.init(first)
    assert second == ProducerIdAndEpoch(500, 1)
    assert world.init(first) == second
    third = world.init(ProducerIdAndEpoch(500, 1))
    assert third == ProducerIdAndEpoch(500, 2)
    assert world.init(first) is ErrorCode.PRODUCER_FENCED


def test_a_zombie_cannot_claim_the_epoch_that_was_taken_from_it(world: World):
    zombie = world.producer()
    world.producer()
    assert world.init(zombie) is ErrorCode.PRODUCER_FENCED


def test_epochs_that_run_out_give_a_new_producer_id(world: World):
    world.take(ProducerInitialised(ID, 500, EPOCH_MAX - 1, TIMEOUT_MS, world.now_ms))
    last = ProducerIdAndEpoch(500, EPOCH_MAX - 1)
    world.fresh_id = 777
    world.add(last, P0)
    assert world.end(last, committed=True) == ProducerIdAndEpoch(777, 0)
    marker = world.there().marker
    assert marker is not None
    assert (marker.producer_id, marker.producer_epoch) == (500, EPOCH_MAX)
    world.complete()
    assert world.end(last, committed=True) == ProducerIdAndEpoch(777, 0)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world: World):
    producer = world.producer()
    world.now_ms += TIMEOUT_MS * 3
    assert not is_overdue(world.there(), world.now_ms)
    world.add(producer, P0)
    world.now_ms += TIMEOUT_MS - 1
    assert not is_overdue(world.there(), world.now_ms)
    assert is_overdue(world.there(), world.now_ms + 1)
    decided = abort(world.there(), fresh_id=None, now_ms=world.now_ms)
    assert isinstance(decided, Ending)
    world.take(decided.fact)
    world.complete()
    assert world.add(producer, P0) is ErrorCode.PRODUCER_FENCED
    assert world.end(producer, committed=True) is ErrorCode.PRODUCER_FENCED


def test_timeouts_out_of_bounds_are_refused(world: World):
    assert world.init(timeout_ms=0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init(timeout_ms=900_001) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_idle_id_is_forgotten_after_its_time_and_an_open_transaction_never(world: World):
    producer = world.producer()
    later_ms = world.now_ms + RULES.transactional_id_expiration_ms
    assert expire(world.there(), RULES, later_ms - 1) is None
    forgotten = expire(world.there(), RULES, later_ms)
    assert forgotten is not None
    world.add(producer, P0)
    assert expire(world.there(), RULES, later_ms * 2) is None
    world.take(forgotten)
    assert world.known is None


def test_facts_and_snapshots_build_the_same_state(world: World):
    first = world.producer()
    world.add(first, P0, group="g")
    second = world.end(first, committed=True)
    assert isinstance(second, ProducerIdAndEpoch)
    replayed = TransactionsState()
    encoded = msgspec.msgpack.encode(world.facts)
    for fact in msgspec.msgpack.decode(encoded, type=list[TransactionFact]):
        replayed.apply(fact)
    assert replayed.transactions == world.state.transactions
    stored = msgspec.msgpack.encode(stored_transactions(world.state))
    restored = restored_transactions(msgspec.msgpack.decode(stored, type=StoredTransactions))
    assert restored.transactions == world.state.transactions
