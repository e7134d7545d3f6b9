"""The bytes of replies in memory, over all connections: those being read and those not yet sent.

Owns one count, its bound, and how much of it a fetch may take. Must never refuse the next record
batch to a connection that holds nothing: a consumer that reads its replies continues, whatever
others do.

A fetch takes at most half of the free bytes, so replies become smaller as the count nears its
bound. If that half is less than one record batch, the fetch gets one batch (as Kafka sends one that
is larger than requested), or nothing if its connection already holds bytes. So the bound is
exceeded by at most one record batch for each connection. While more than half of the bound is
taken, the server closes connections that do not read their replies.

Bytes that several replies share, such as those of the tail, are counted for each reply. A read may
load more than it counts while it waits for the store: up to two entries of a lane.
"""

import asyncio

ONE_BATCH_BYTES = 1024 * 1024
"""The assumed size of a record batch before it is read (message.max.bytes)."""
UNBOUNDED = 1 << 62


class ReplyMemory:
    """The reply bytes of all connections of a server."""

    __slots__ = ("bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = UNBOUNDED) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    @property
    def is_scarce(self) -> bool:
        """True if more than half of the bound is taken."""
        return 2 * self.used_bytes > self.bytes_max


class ReplyAccount:
    """The reply bytes of one connection."""

    __slots__ = ("_memory", "used_bytes")

    def __init__(self, memory: ReplyMemory | None = None) -> None:
        self._memory = memory or ReplyMemory()
        self.used_bytes = 0

    def count(self, change_bytes: int) -> None:
        """Add bytes to the count of this connection, or subtract them."""
        self.used_bytes += change_bytes
        self._memory.used_bytes += change_bytes

    def largest_share(self) -> int:
        """Return the most bytes that one more read may take."""
        return max(0, self._memory.bytes_max - self._memory.used_bytes) // 2


class Reservation:
    """The bytes that one fetch counts while it reads, until its connection counts the reply."""

    __slots__ = ("_account", "_expected_bytes", "_taken_bytes", "is_shrunk")

    def __init__(self, account: ReplyAccount) -> None:
        self._account = account
        self._expected_bytes = 0
        self._taken_bytes = 0
        self.is_shrunk = False
        """True if a read was allowed fewer bytes than it wanted."""

    def allow(self, wanted_bytes: int) -> int | None:
        """Return how many bytes the next read may take: 0 is one record batch, None is nothing."""
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
        """Count the bytes that the read put into the reply instead of those that were allowed."""
        self._account.count(read_bytes - self._expected_bytes)
        self._taken_bytes += read_bytes
        self._expected_bytes = 0

    def give_back(self) -> None:
        """Subtract everything that this fetch has counted, because its records are not kept."""
        self._account.count(-self._taken_bytes - self._expected_bytes)
        self._taken_bytes = self._expected_bytes = 0
        self.is_shrunk = False

    def hand_over(self) -> None:
        """Give back just before the connection counts the reply: callbacks run in order."""
        if self._taken_bytes or self._expected_bytes:
            asyncio.get_running_loop().call_soon(self.give_back)
