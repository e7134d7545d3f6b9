"""Thousands of requests with changed bytes: the broker stays up, and others do not notice."""

from tests.hostile.conftest import MEMORY_GROWTH_MAX, Broker
from tests.hostile.mutations import send_all
from tests.peers.holdfast import HoldfastBroker


def test_three_thousand_changed_requests_harm_nobody_else(tmp_path):
    process = HoldfastBroker(tmp_path).start()  # its own: some changes delete and create, rightly
    try:
        broker = Broker(process)
        outcome = send_all(process.port, frames=3_000, seed=20261115)
        assert outcome["sent"] >= 3_000
        assert outcome["answered"] > 100, "hardly anything got past the frame"
        broker.use_as_a_neighbour()
        assert broker.bugs_in_the_log() == []
        assert process.process.memory_bytes() - broker.memory_bytes < MEMORY_GROWTH_MAX
    finally:
        process.stop()
