"""The client that sends a request to a coordinator."""

from typing import NamedTuple


class Caller(NamedTuple):
    """A client, and the version of its request."""

    client_id: str
    client_host: str
    version: int
