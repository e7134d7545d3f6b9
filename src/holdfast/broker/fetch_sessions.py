"""Incremental fetch sessions (KIP-227): a consumer's partitions, remembered between fetches.

Pure. Owns the sessions and their bounds. The session that was idle for longest makes room for a new
one. A session is a convenience of one broker: it is never stored, and a client whose session is
gone starts again with a full fetch.
"""

import enum
from collections import OrderedDict
from typing import NamedTuple
from uuid import UUID

from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCHS = 1 << 31
NO_SESSION = 0
PARTITIONS_MAX = 200_000
"""The most partitions over all sessions, which take about 100 MiB. One request can name millions of
partitions, and a session keeps them."""


class TopicKey(NamedTuple):
    """A topic as the client named it: by name, or (since version 13) by id."""

    name: str
    topic_id: UUID


class WantedPartition(NamedTuple):
    """One partition that a fetch asks for."""

    topic: TopicKey
    partition: FetchPartition


class SessionProblem(enum.Enum):
    """The reason why a session cannot be used, under Kafka's name."""

    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71


class Told(NamedTuple):
    """The offsets of a partition that the last response gave to the client."""

    high_watermark: int
    log_start_offset: int


class FetchSession:
    """The partitions that one consumer fetches."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.next_epoch = 1
        self.wanted: OrderedDict[tuple[TopicKey, int], FetchPartition] = OrderedDict()
        self.told: dict[tuple[TopicKey, int], Told] = {}

    def update(self, request: FetchRequest) -> None:
        """Add, change and forget the partitions that a request names."""
        for topic in request.topics:
            key = TopicKey(topic.topic, topic.topic_id)
            for partition in topic.partitions:
                self.wanted[key, partition.partition] = partition
        for topic in request.forgotten_topics_data:
            key = TopicKey(topic.topic, topic.topic_id)
            for index in topic.partitions:
                self.wanted.pop((key, index), None)
                self.told.pop((key, index), None)

    def move_to_end(self, topic: TopicKey, partition: int) -> None:
        """Move a partition that was just served behind the others, so that none starves."""
        if (topic, partition) in self.wanted:
            self.wanted.move_to_end((topic, partition))


class Opened(NamedTuple):
    """The partitions to serve, and their session, if there is one."""

    wanted: list[WantedPartition]
    session: FetchSession | None
    is_incremental: bool


class FetchSessions:
    """All fetch sessions of a broker."""

    def __init__(self, sessions_max: int, partitions_max: int = PARTITIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self.partitions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest) -> Opened | SessionProblem:
        """Return the partitions that a fetch asks for, or the problem of its session."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return Opened(_wanted_by(request), None, False)
            session = self._new_session()
            if session is not None and not self._update(session, request):
                session = None
            return Opened(_wanted_by(request), session, False)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionProblem.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != session.next_epoch:
            return SessionProblem.INVALID_FETCH_SESSION_EPOCH
        session.next_epoch = session.next_epoch + 1 if session.next_epoch < EPOCHS - 1 else 1
        self._sessions.move_to_end(session.session_id)
        if not self._update(session, request):
            return SessionProblem.FETCH_SESSION_ID_NOT_FOUND
        wanted = [WantedPartition(key[0], partition) for key, partition in session.wanted.items()]
        return Opened(wanted, session, True)

    def _update(self, session: FetchSession, request: FetchRequest) -> bool:
        """Apply a request. Return False if the session was too large to be kept, and has ended."""
        before = len(session.wanted)
        session.update(request)
        self.partitions += len(session.wanted) - before
        while self.partitions > self._partitions_max:
            self._end(next(iter(self._sessions)))
        return session.session_id in self._sessions

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)

    def _new_session(self) -> FetchSession | None:
        if self._sessions_max <= 0:
            return None
        while len(self._sessions) >= self._sessions_max:
            self._end(next(iter(self._sessions)))
        self._last_id = self._last_id % (EPOCHS - 1) + 1
        session = FetchSession(self._last_id)
        self._sessions[session.session_id] = session
        return session


def _wanted_by(request: FetchRequest) -> list[WantedPartition]:
    return [
        WantedPartition(TopicKey(topic.topic, topic.topic_id), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]
