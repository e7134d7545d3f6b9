"""The bytes of replies in memory, over all connections: those being read and those not yet sent.

Owns one count, its bound, and how much of it a fetch may take. Must never refuse a connection that
holds nothing its next record batch: a consumer that reads its replies goes on, whatever others do.

A fetch takes at most half of what is free, so replies become smaller as the bound fills. Below the
size of one record batch it gets one batch (as Kafka sends one that is larger than what was asked
for), or nothing if its connection holds bytes already. So the bound is exceeded by one record batch
for each connection at most. While more than half of it is taken, the server closes connections that
do not read their replies.

Bytes that several replies share, as those of the tail, are counted for each reply. A read may load
more than it counts while it waits for the store: up to two entries of a lane.
"""

import asyncio

ONE_BATCH_BYTES = 1024 * 1024
"""What a record batch is taken to need before it is read (message.max.bytes)."""
UNBOUNDED = 1 << 62


class ReplyMemory:
    """The count of all connections of a server."""

    __slots__ = ("bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    @property
    def is_scarce(self) -> bool:
        """Whether more than half is taken."""
        return 2 * self.used_bytes > self.bytes_max


class ReplyAccount:
    """The part of one connection in the count."""

    __slots__ = ("_memory", "used_bytes")

    def __init__(self, memory: ReplyMemory | None = None) -> None:
        self._memory = memory or ReplyMemory()
        self.used_bytes = 0

    def count(self, change_bytes: int) -> None:
        """Add to what is counted for this connection, or take from it."""
        self.used_bytes += change_bytes
        self._memory.used_bytes += change_bytes

    def largest_share(self) -> int:
        """The most that one more read may take."""
        return max(0, self._memory.bytes_max - self._memory.used_bytes) // 2


class Reservation:
    """What one fetch has counted while it reads, until its connection counts the reply."""

    __slots__ = ("_account", "_expected_bytes", "_taken_bytes", "is_shrunk")

    def __init__(self, account: ReplyAccount) -> None:
        self._account = account
        self._expected_bytes = 0
        self._taken_bytes = 0
        self.is_shrunk = False
        """A read was allowed less than was wanted."""

    def allow(self, wanted_bytes: int) -> int | None:
        """How many bytes the next read may take: 0 is one record batch alone, None is nothing."""
        share_bytes = self._account.largest_share()
        if share_bytes >= wanted_bytes:
            allowed = expected = wanted_bytes
        else:
            self.is_shrunk = True
            allowed = expected = share_bytes
            if share_bytes < ONE_BATCH_BYTES:
                if self._account.used_bytes:
                    return None
                allowed, expected = 0, ONE_BATCH_BYTES
        self._expected_bytes = expected
        self._account.count(expected)
        return allowed

    def settle(self, read_bytes: int) -> None:
        """The read that was allowed has ended, and so many bytes of it go into the reply."""
        self._account.count(read_bytes - self._expected_bytes)
        self._taken_bytes += read_bytes
        self._expected_bytes = 0

    def give_back(self) -> None:
        """What was read is not kept."""
        self._account.count(-self._taken_bytes - self._expected_bytes)
        self._taken_bytes = self._expected_bytes = 0
        self.is_shrunk = False

    def hand_over(self) -> None:
        """Give back just before the connection counts the reply: callbacks run in order."""
        if self._taken_bytes or self._expected_bytes:
            asyncio.get_running_loop().call_soon(self.give_back)
