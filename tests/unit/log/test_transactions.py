"""Transactions on a partition: who may write, who may end, and how far a reader may go."""

import msgspec
import pytest
from tests.support.async_tests import simulated
from tests.support.batches import batch
from tests.support.lanes import P0, World, append, end, flush
from tests.support.stores import Hold

from holdfast.inspect.lane_audit import payload_problems, transaction_problems
from holdfast.lane.recovery import recover
from holdfast.log.append import (
    Accepted,
    AppendRules,
    Duplicate,
    Early,
    MarkerAccepted,
    NothingToEnd,
    decide_append,
    decide_marker,
    opens_transaction,
)
from holdfast.log.data_lane import DataLane
from holdfast.log.facts import (
    Appended,
    LogStartMoved,
    ProducersExpired,
    TransactionEnd,
    decode_facts,
    encode_facts,
)
from holdfast.log.partition import PartitionLog
from holdfast.log.retention import RetentionRules, decide_retention
from holdfast.log.rewriter import RewriteSettings, rewrite
from holdfast.log.state import LogStateKind
from holdfast.log.transactions import AbortedTxn, OpenTransaction, Transactions
from holdfast.protocol.api import ErrorCode, Refused
from holdfast.records.batch import parse_header
from holdfast.records.control import decode_marker
from holdfast.records.stamp import stamp

RULES = AppendRules(timestamp_after_max_ms=1 << 62)
NOW = RewriteSettings(delete_delay_s=0)


def decided(
    log: PartitionLog, producer: tuple[int, int, int], *, transactional: bool = True
) -> Accepted | Duplicate | Early | Refused:
    header = parse_header(batch(producer=producer, transactional=transactional))
    return decide_append(log, header, RULES, 5_000)


def wrote(log: PartitionLog, producer: tuple[int, int, int], *, transactional: bool = True) -> int:
    decision = decided(log, producer, transactional=transactional)
    assert isinstance(decision, Accepted), decision
    log.append(decision.fact, 0)
    log.publish(decision.fact)
    return decision.fact.base_offset


def marker(
    log: PartitionLog, producer_id: int, producer_epoch: int, *, committed: bool = True, at: int = 0
) -> MarkerAccepted | NothingToEnd | Refused:
    return decide_marker(
        log,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        committed=committed,
        coordinator_epoch=at,
        now_ms=6_000,
    )


def ended(
    log: PartitionLog, producer_id: int, producer_epoch: int, *, committed: bool = True, at: int = 0
) -> Appended:
    decision = marker(log, producer_id, producer_epoch, committed=committed, at=at)
    assert isinstance(decision, MarkerAccepted), decision
    log.append(decision.fact, 0)
    return decision.fact


def test_a_transactional_batch_opens_a_transaction_and_the_next_goes_on_with_it():
    log = PartitionLog(P0)
    assert wrote(log, (1, 0, 0)) == 0
    assert wrote(log, (1, 0, 1)) == 1
    assert log.transactions.open == {1: OpenTransaction(0, 0, 5_000)}
    assert not opens_transaction(log, parse_header(batch(producer=(1, 0, 2), transactional=True)))
    assert opens_transaction(log, parse_header(batch(producer=(2, 0, 0), transactional=True)))
    assert not opens_transaction(log, parse_header(batch(producer=(2, 0, 0))))


def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    refused = decided(log, (1, 0, 1), transactional=False)
    assert isinstance(refused, Refused)
    assert refused.error is ErrorCode.INVALID_TXN_STATE
    ended(log, 1, 0)
    assert isinstance(decided(log, (1, 0, 1), transactional=False), Accepted)


def test_an_older_epoch_than_the_known_one_may_neither_write_nor_end():
    log = PartitionLog(P0)
    wrote(log, (1, 3, 0))
    for answer in (decided(log, (1, 2, 0)), marker(log, 1, 2)):
        assert isinstance(answer, Refused)
        assert answer.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert 1 in log.transactions.open


def test_a_marker_of_the_next_epoch_lets_sequences_start_at_zero_and_nowhere_else():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    wrote(log, (1, 0, 1))
    ended(log, 1, 1)
    late, gap = decided(log, (1, 0, 2)), decided(log, (1, 1, 2))
    assert isinstance(late, Refused)
    assert late.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert isinstance(gap, Early)
    assert gap.expected_sequence == 0
    assert isinstance(decided(log, (1, 1, 0)), Accepted)


def test_a_marker_of_the_same_epoch_lets_sequences_go_on_and_retries_be_recognised():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    ended(log, 1, 0)
    assert isinstance(decided(log, (1, 0, 0)), Duplicate)
    assert isinstance(decided(log, (1, 0, 1)), Accepted)


def test_the_marker_is_a_control_batch_at_the_next_offset_and_says_what_it_ends():
    log = PartitionLog(P0)
    wrote(log, (9, 0, 0), transactional=False)
    wrote(log, (1, 4, 0))
    decision = marker(log, 1, 5, committed=False, at=8)
    assert isinstance(decision, MarkerAccepted)
    header = parse_header(decision.record_batch)
    assert (header.base_offset, header.last_offset) == (2, 2)
    assert decode_marker(decision.record_batch) == (1, 5, False, 8, 6_000)
    assert decision.fact.ends == TransactionEnd(False, 8, 1)
    assert (decision.fact.size_bytes, decision.fact.crc) == (header.size_bytes, header.crc)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_marker_that_is_repeated_ends_nothing_more(epoch: int):
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    ended(log, 1, epoch)
    assert marker(log, 1, epoch) == NothingToEnd()
    assert log.log_end_offset == 2


def test_a_transaction_that_wrote_nothing_here_is_ended_once_and_fences_its_epoch():
    log = PartitionLog(P0)
    fact = ended(log, 1, 5, committed=False)
    assert fact.ends == TransactionEnd(False, 0, -1)
    assert log.transactions.aborted == []
    assert marker(log, 1, 5) == NothingToEnd()
    refused = decided(log, (1, 4, 0))
    assert isinstance(refused, Refused)
    assert refused.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_an_older_coordinator_is_refused():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    ended(log, 1, 0, at=4)
    wrote(log, (1, 0, 1))
    refused = marker(log, 1, 0, at=3)
    assert isinstance(refused, Refused)
    assert refused.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction():
    log = PartitionLog(P0)
    wrote(log, (9, 0, 0), transactional=False)
    assert log.last_stable_offset == 1
    wrote(log, (1, 0, 0))
    wrote(log, (2, 0, 0))
    assert log.last_stable_offset == 1
    log.publish(ended(log, 1, 0))
    assert log.last_stable_offset == 2
    log.publish(ended(log, 2, 0, committed=False))
    assert log.last_stable_offset == log.high_watermark == 5


def test_a_decided_marker_moves_nothing_before_it_is_durable():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    fact = ended(log, 1, 0)
    assert log.last_stable_offset == 0
    assert wrote(log, (1, 0, 1)) == 2
    assert log.last_stable_offset == 0
    log.publish(fact)
    log.high_watermark = 3
    assert log.last_stable_offset == 2


def test_a_log_start_past_an_open_transaction_takes_the_last_stable_offset_along():
    log = PartitionLog(P0)
    for sequence in range(3):
        wrote(log, (1, 0, sequence))
    log.publish_start(2)
    assert log.last_stable_offset == 2


def test_the_aborted_index_names_what_has_something_in_a_range():
    transactions = Transactions()
    transactions.write(1, 0, 0, 0)
    transactions.write(2, 0, 1, 0)
    transactions.write(3, 0, 2, 0)
    transactions.end(2, 1, 5, committed=False)
    transactions.end(1, 0, 6, committed=True)
    transactions.end(3, 2, 7, committed=False)
    transactions.write(2, 0, 8, 0)
    transactions.end(2, 8, 9, committed=False)
    two = AbortedTxn(2, 1, 5, 0)
    three = AbortedTxn(3, 2, 7, 8)
    again = AbortedTxn(2, 8, 9, 10)
    assert transactions.aborted == [two, three, again]
    assert transactions.aborted_within(0, 10) == [two, three, again]
    assert transactions.aborted_within(0, 1) == []
    assert transactions.aborted_within(0, 2) == [two]
    assert transactions.aborted_within(0, 3) == [two, three]
    assert transactions.aborted_within(6, 8) == [three]
    assert transactions.aborted_within(6, 9) == [three, again]
    transactions.drop_below(6)
    assert transactions.aborted == [three, again]


@simulated
async def test_retention_stops_at_the_last_stable_offset(world: World):
    lane = await world.own()
    rules = RetentionRules(retention_ms=1, retention_bytes=-1, deletes=True)
    append(lane)
    await flush(lane)
    append(lane, producer=(1, 0, 0), transactional=True)
    await flush(lane)
    append(lane)
    await flush(lane)
    log = lane.log_of(P0)
    assert decide_retention(log, rules, 1 << 50) == LogStartMoved(P0, 1)
    end(lane, 1, 0, committed=True)
    await flush(lane)
    assert decide_retention(log, rules, 1 << 50) == LogStartMoved(P0, 4)


@simulated
async def test_aborted_entries_below_the_log_start_go_also_from_the_snapshot(world: World):
    lane = await world.own()
    for sequence in range(2):
        append(lane, producer=(1, 0, sequence), transactional=True)
        end(lane, 1, 0, committed=False)
    await flush(lane)
    log = lane.log_of(P0)
    assert [entry.last_offset for entry in log.transactions.aborted] == [1, 3]
    lane.add(LogStartMoved(P0, 2))
    decoded = LogStateKind().decode(lane.state.encode()).log_of(P0)
    assert [entry.last_offset for entry in decoded.transactions.aborted] == [3]
    await flush(lane)
    assert [entry.last_offset for entry in log.transactions.aborted] == [3]


@simulated
async def test_a_producer_with_an_open_transaction_does_not_expire(world: World):
    lane = await world.own()
    append(lane, producer=(1, 0, 0), transactional=True)
    append(lane, producer=(2, 0, 0))
    lane.add(ProducersExpired(1 << 60))
    log = lane.log_of(P0)
    assert list(log.producers) == [1]
    assert log.expired_producers(1 << 60) == []
    end(lane, 1, 0, committed=True)
    lane.add(ProducersExpired(1 << 60))
    assert log.producers == {}


async def with_transactions(world: World) -> DataLane:
    """One aborted, one committed, one open, plain records between."""
    lane = await world.own()
    append(lane, producer=(1, 0, 0), transactional=True)
    append(lane)
    append(lane, producer=(2, 0, 0), transactional=True)
    await flush(lane)
    end(lane, 1, 0, committed=False)
    end(lane, 2, 1, committed=True, coordinator_epoch=6)
    append(lane, producer=(3, 0, 0), transactional=True)
    append(lane)
    await flush(lane)
    return lane


@simulated
async def test_open_and_aborted_transactions_survive_rewriting_and_a_new_owner(world: World):
    lane = await with_transactions(world)
    before = lane.log_of(P0)
    cut = await lane.reader.read(before, 0, 1 << 20)
    data = b"".join(bytes(buffer) for buffer in cut.buffers)
    await rewrite(lane, NOW)
    for fresh in (lane, await world.own()):
        log = fresh.log_of(P0)
        assert log.runs.find(0) == len(log.runs)
        assert log.transactions.open == {3: OpenTransaction(0, 5, log.producers[3].last_ms)}
        assert log.transactions.aborted == [AbortedTxn(1, 0, 3, 2)]
        assert log.last_stable_offset == 5
        assert log.producers[2].coordinator_epoch == 6
        assert list(transaction_problems(log)) == []
        cut = await fresh.reader.read(log, 0, 1 << 20)
        assert b"".join(bytes(buffer) for buffer in cut.buffers) == data


@simulated
async def test_a_snapshot_of_the_same_number_is_the_same_state(world: World):
    lane = await with_transactions(world)
    await lane.snapshot_now()
    recovered = await recover(world.memory, world.environment(), lane.lane, LogStateKind())
    assert recovered.state.encode() == lane.state.encode()
    assert recovered.state.log_of(P0).last_stable_offset == 5


@simulated
async def test_a_snapshot_and_facts_from_before_transactions_are_still_read(world: World):
    lane = await world.own()
    append(lane, producer=(1, 0, 0))
    await flush(lane)
    raw = msgspec.msgpack.decode(lane.state.encode())
    for partition in raw[3]:
        del partition[8:]
        for producer in partition[7]:
            del producer[4:]
    log = LogStateKind().decode(msgspec.msgpack.encode(raw)).log_of(P0)
    assert log.producers[1].coordinator_epoch == -1
    assert log.transactions.open == {}
    assert log.last_stable_offset == 1
    fact = Appended(P0, 0, 0, 80, 1, 7, 1, 0, 0, 5)
    old = [one[:-2] for one in msgspec.msgpack.decode(encode_facts([fact]))]
    assert decode_facts(msgspec.msgpack.encode(old)) == [fact]


@simulated
async def test_a_reader_waits_for_the_durable_marker_also_while_its_put_hangs(world: World):
    lane = await world.own()
    append(lane, producer=(1, 0, 0), transactional=True)
    await flush(lane)
    hold = Hold("create", "lanes/")
    world.store.before.append(hold)
    end(lane, 1, 0, committed=True)
    await hold.reached.wait()
    assert lane.log_of(P0).last_stable_offset == 0
    hold.go.set()
    await flush(lane)
    assert lane.log_of(P0).last_stable_offset == 2


def audited(fact: Appended, data: bytearray) -> list[str]:
    stamp(data, base_offset=fact.base_offset, leader_epoch=0)
    return list(payload_problems([fact], data, 0))


def test_the_audit_compares_markers_and_transactional_batches_with_their_facts():
    log = PartitionLog(P0)
    data = batch(producer=(1, 0, 0), transactional=True)
    fact = decide_append(log, parse_header(data), RULES, 5_000)
    assert isinstance(fact, Accepted)
    assert audited(fact.fact, data) == []
    (problem,) = audited(msgspec.structs.replace(fact.fact, is_transactional=False), data)
    assert "transactional" in problem
    wrote(log, (1, 0, 0))
    decision = marker(log, 1, 0)
    assert isinstance(decision, MarkerAccepted)
    assert audited(decision.fact, decision.record_batch) == []
    (problem,) = audited(msgspec.structs.replace(decision.fact, ends=None), decision.record_batch)
    assert "control batch" in problem
    other = msgspec.structs.replace(decision.fact, ends=TransactionEnd(False, 0, 0))
    (problem,) = audited(other, decision.record_batch)
    assert "the transaction marker is" in problem


def test_the_audit_names_transactions_that_cannot_be():
    log = PartitionLog(P0)
    wrote(log, (1, 0, 0))
    log.transactions = Transactions([(7, OpenTransaction(0, 9, 0))], [AbortedTxn(1, 3, 2, 3)])
    problems = " ".join(transaction_problems(log))
    assert "is not among the producers" in problems
    assert "past the log end" in problems
    assert "is out of place" in problems
