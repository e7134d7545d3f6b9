"""One request, sent as it is to the first broker of a cluster, and its decoded answer."""

import asyncio
from typing import TypeVar

from holdfast.client.address import parse_bootstrap
from holdfast.client.connection import BrokerConnection
from holdfast.protocol.message import Message

R = TypeVar("R", bound=Message)


def ask(bootstrap: str, request: Message, response: type[R], *, version: int) -> R:
    async def asked() -> R:
        connection = await BrokerConnection.open(parse_bootstrap(bootstrap)[0])
        try:
            return await connection.request(request, response, version=version)
        finally:
            await connection.close()

    return asyncio.run(asked())
