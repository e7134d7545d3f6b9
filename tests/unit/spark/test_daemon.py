"""Spark's daemon of Python workers, as Holdfast starts it."""

import socket

import pytest

from holdfast.spark.runtime.daemon import ending_quietly


def test_a_worker_whose_rows_nobody_wants_any_more_ends_without_a_traceback():
    def worker(sock: socket.socket, authenticated: bool) -> int:
        sock.sendall(b"row" * 1_000_000)
        return 0

    ours, sparks = socket.socketpair()
    sparks.close()
    with ours:
        assert ending_quietly(worker)(ours, True) == 1


def test_every_other_end_of_a_worker_is_as_it_was():
    def fails(sock: socket.socket, authenticated: bool) -> int:
        raise ValueError("in the user's code")

    left, right = socket.socketpair()
    with left, right:
        assert ending_quietly(lambda sock, authenticated: 7)(left, False) == 7
        with pytest.raises(ValueError, match="in the user's code"):
            ending_quietly(fails)(left, True)
