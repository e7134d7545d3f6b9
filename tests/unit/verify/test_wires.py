"""How simulated brokers reach each other: the dead refuse, and who stands or is cut is silent."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.network import Network, NetworkPlan
from simulation.virtual_loop import PROCESS, VirtualLoop
from simulation.wires import PeerWay, Wires

from holdfast.client.address import Address
from holdfast.client.refusals import BrokerUnavailable, NobodyListens
from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.protocol.message import Message
from holdfast.protocol.messages.lane_hand_over import LaneHandOverRequest, LaneHandOverResponse

THERE = Address("there", 9092)
REQUEST = LaneHandOverRequest(lane=1, leader_epoch=2, to_broker_id=3)


class Listener:
    """Answers with the process that it runs in."""

    is_listening = True
    served = 0

    async def answer_peer(self, message: Message, version: int) -> Any:
        self.served += 1
        await asyncio.sleep(0.1)
        return LaneHandOverResponse(error_message=PROCESS.get())


def run(main: Callable[[VirtualLoop, Wires, Listener], Coroutine[Any, Any, Any]]) -> Any:
    loop = VirtualLoop(seed=1)
    environment = SeededEnvironment(seed=1, clock=VirtualClock())
    wires, listener = Wires(Network(loop, environment, NetworkPlan())), Listener()
    wires.listen(THERE, "there", listener)
    try:
        return loop.run_until_complete(main(loop, wires, listener))
    finally:
        loop.close()


async def ask(wires: Wires, timeout_s: float = 2.0) -> str | None:
    way = PeerWay(wires, "here")
    answer = await way.ask(THERE, REQUEST, LaneHandOverResponse, version=0, timeout_s=timeout_s)
    return answer.error_message


def test_a_request_is_served_inside_the_process_that_is_asked():
    async def main(loop: VirtualLoop, wires: Wires, listener: Listener) -> None:
        assert await ask(wires) == "there"

    run(main)


def test_where_the_process_is_dead_nobody_listens_and_that_is_known_at_once():
    async def main(loop: VirtualLoop, wires: Wires, listener: Listener) -> None:
        loop.kill("there")
        with pytest.raises(NobodyListens):
            await ask(wires)
        assert loop.time() < 0.1

    run(main)


def test_a_process_that_stands_still_is_silent_and_serves_what_it_was_asked_later():
    async def main(loop: VirtualLoop, wires: Wires, listener: Listener) -> None:
        loop.pause("there", 5.0)
        with pytest.raises(BrokerUnavailable, match="did not answer"):
            await ask(wires)
        assert (loop.time(), listener.served) == (2.0, 0)
        await asyncio.sleep(4)
        assert listener.served == 1

    run(main)


@pytest.mark.parametrize(("way", "served"), [(("here", "there"), 0), (("there", "here"), 1)])
def test_a_cut_loses_what_is_sent_that_way_and_no_other(way: tuple[str, str], served: int):
    async def main(loop: VirtualLoop, wires: Wires, listener: Listener) -> None:
        wires.cut({way}, 5.0)
        with pytest.raises(BrokerUnavailable, match="did not answer"):
            await ask(wires)
        assert listener.served == served
        await asyncio.sleep(5)
        assert await ask(wires) == "there"

    run(main)


def test_who_waits_for_a_process_that_dies_hears_of_it():
    async def main(loop: VirtualLoop, wires: Wires, listener: Listener) -> None:
        asking = loop.create_task(ask(wires, 30.0))
        await asyncio.sleep(0.05)
        loop.kill("there")
        wires.hang_up("there")
        with pytest.raises(BrokerUnavailable, match="gone"):
            await asking
        assert loop.time() < 1

    run(main)
