"""An in-memory store that records each stored lane object in the history.

Owns what counts as durable: the moment at which the key is taken. It reads the objects with the
lane's own parser, but the checkers see only the numbers. Must never change an answer.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from holdfast.cluster.facts import TopicCreated
from holdfast.cluster.facts import decode_facts as decode_control_facts
from holdfast.environment import Environment
from holdfast.identifiers import CONTROL_LANE, PartitionId
from holdfast.lane.entry import EntryHeader, EntryKind, decode_claim, facts_of, parse_header
from holdfast.lane.keys import number_in
from holdfast.log.facts import Appended, DataFact, RecordsMissing, decode_facts
from holdfast.store.interface import Buffers, CreateAnswer
from holdfast.store.memory import MemoryStore
from holdfast.verify.history import Append, GivenUp, LandedKind, Recorder
from simulation.observed_decisions import decisions_of

LANES_PREFIX = "lanes/"
KINDS = {
    EntryKind.CLAIM: LandedKind.CLAIM,
    EntryKind.DATA: LandedKind.DATA,
    EntryKind.RELEASE: LandedKind.RELEASE,
}
ValuesOf = Callable[[Appended], tuple[int, ...]]


def process_name(broker_id: int, number: int) -> str:
    """Return the name of a process in a history."""
    return f"broker-{broker_id}.{number}"


class ObservedStore(MemoryStore):
    """The real store of a simulation, beneath the injected faults."""

    def __init__(
        self,
        *,
        environment: Environment,
        recorder: Recorder,
        values_of: ValuesOf,
        now: Callable[[], float],
    ) -> None:
        super().__init__(environment=environment)
        self._now = now
        self._recorder = recorder
        self._values_of = values_of
        self.topics: dict[UUID, TopicCreated] = {}
        """All topics whose creation was ever durable."""

    async def create(self, key: str, body: Buffers) -> CreateAnswer:
        answer = await super().create(key, body)
        if answer is CreateAnswer.CREATED and key.startswith(LANES_PREFIX):
            self._tell(key, b"".join(body))
        return answer

    def name_of(self, partition: PartitionId) -> str:
        """Return the name that clients use for a partition."""
        topic = self.topics.get(partition.topic_id)
        return f"{topic.name if topic else partition.topic_id}/{partition.partition}"

    def _tell(self, key: str, body: bytes) -> None:
        header = parse_header(body, key=key)
        number = number_in(key)
        facts = self._facts(header, body, key)
        given_up = tuple(
            GivenUp(self.name_of(fact.partition), fact.base_offset, fact.last_offset)
            for fact in facts
            if isinstance(fact, RecordsMissing)
        )
        holes = {(hole.partition, hole.base_offset) for hole in given_up}
        process, valid_s, owed_s = "", -1.0, 0.0
        if header.kind is EntryKind.CLAIM:
            claim = decode_claim(facts_of(header, body, key=key))
            process = process_name(claim.broker_id, claim.process)
            valid_s, owed_s = claim.valid_ms / 1000, claim.owed_ms / 1000
        self._recorder.landed(
            lane=header.lane,
            number=-1 if number is None else number,
            kind=KINDS[header.kind],
            claim=header.claim,
            writer=header.writer.hex(),
            previous=header.previous.hex(),
            digest=header.hash.hex(),
            appends=tuple(
                Append(self.name_of(fact.partition), fact.base_offset, self._values_of(fact))
                for fact in facts
                if isinstance(fact, Appended)
                and (self.name_of(fact.partition), fact.base_offset) not in holes
            ),
            decisions=decisions_of(facts, self.name_of),
            given_up=given_up,
            at=self._now(),
            process=process,
            valid_s=valid_s,
            owed_s=owed_s,
        )

    def _facts(self, header: EntryHeader, body: bytes, key: str) -> Sequence[DataFact]:
        if header.kind is not EntryKind.DATA:
            return ()
        if header.lane == CONTROL_LANE:
            for fact in decode_control_facts(facts_of(header, body, key=key)):
                if isinstance(fact, TopicCreated):
                    self.topics[fact.topic_id] = fact
            return ()
        return decode_facts(facts_of(header, body, key=key))
