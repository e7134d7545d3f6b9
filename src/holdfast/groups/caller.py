"""Who asks something of a coordinator."""

from typing import NamedTuple


class Caller(NamedTuple):
    """Who asks, in which version."""

    client_id: str
    client_host: str
    version: int
