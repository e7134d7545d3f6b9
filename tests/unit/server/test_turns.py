"""Connections whose requests take long: one at a time, and half of the time at most."""

from collections.abc import Callable

from holdfast.server.turns import ALONE_SECONDS, LONG_SECONDS, REST_SECONDS_MAX, ConnectionTurns


class HandLoop:
    """A loop and its clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0.0, callback)

    def call_later(self, wait: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + wait, callback))

    def turn(self) -> None:
        """Run what is due, but nothing that becomes due thereby."""
        ready = [each for each in self.due if each[0] <= self.now]
        self.due = [each for each in self.due if each[0] > self.now]
        for _, callback in ready:
            callback()


class Slow:
    """A connection each of whose turns is one long request, and which always has another."""

    def __init__(self, loop: HandLoop, turns: ConnectionTurns, seconds: float) -> None:
        self.loop, self.turns, self.seconds = loop, turns, seconds
        self.count = 0

    def take_turn(self) -> None:
        self.count += 1
        self.loop.now += self.seconds
        self.turns.had_long_request(self.seconds, self.loop.now)
        self.turns.wait(self)


def begun(count: int, seconds: float) -> tuple[HandLoop, ConnectionTurns, list[Slow]]:
    loop = HandLoop()
    turns = ConnectionTurns(loop, lambda: loop.now)  # pyright: ignore[reportArgumentType]
    slow = [Slow(loop, turns, seconds) for _ in range(count)]
    for each in slow:
        turns.wait(each)
    return loop, turns, slow


def test_one_slow_connection_is_served_between_two_turns_of_the_loop():
    loop, _, slow = begun(50, 0.02)
    for _ in range(100):
        before = sum(each.count for each in slow)
        loop.turn()
        assert sum(each.count for each in slow) <= before + 1
    assert [each.count for each in slow] == [2] * 50


def test_slow_connections_rest_as_long_as_they_took_while_others_send_requests():
    loop, turns, slow = begun(3, 0.02)
    worked, begun_at = 0.0, loop.now
    while loop.now < begun_at + 10:
        turns.had_short_turn(loop.now)
        before = loop.now
        loop.turn()
        worked += loop.now - before
        loop.now += LONG_SECONDS / 10
    assert 0.4 <= worked / (loop.now - begun_at) <= 0.51
    assert max(each.count for each in slow) - min(each.count for each in slow) <= 1


def test_a_slow_connection_that_is_alone_does_not_rest():
    loop, turns, slow = begun(1, 0.02)
    turns.had_short_turn(loop.now - ALONE_SECONDS)
    for _ in range(10):
        loop.turn()
    assert slow[0].count == 10


def test_a_rest_is_bounded():
    loop, turns, slow = begun(1, 5.0)
    turns.had_short_turn(loop.now + 5.0)
    loop.turn()
    loop.now += REST_SECONDS_MAX
    loop.turn()
    assert slow[0].count == 2
