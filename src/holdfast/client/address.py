"""Broker addresses as users write them: host:port, lists of them, IPv6 in brackets.

Pure. Owns the parsing of bootstrap lists and of listeners, and nothing else.
"""

from typing import NamedTuple

from holdfast.errors import ConfigurationError

PORT_MAX = 65_535


class Address(NamedTuple):
    """One host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(bootstrap: str) -> list[Address]:
    """Parse a comma-separated list; ConfigurationError says which part is wrong, and why."""
    parts = [part.strip() for part in bootstrap.split(",")]
    addresses = [_parse(part) for part in parts if part]
    if not addresses:
        raise ConfigurationError("the bootstrap list is empty; give at least one host:port")
    return addresses


def parse_listen(text: str) -> Address:
    """Parse HOST:PORT to listen on, also [::1]:9092; port 0 lets the system pick one."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise ConfigurationError(f"{text!r} is not HOST:PORT, as in 127.0.0.1:9092")
    return Address(host.strip("[]"), int(port))


def _parse(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(
            f"the bootstrap address {text!r} has several colons; write IPv6 as [address]:port"
        )
    if not separator or not host:
        raise ConfigurationError(
            f"the bootstrap address {text!r} is not host:port; Kafka's usual port is 9092"
        )
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= PORT_MAX:
        raise ConfigurationError(
            f"the bootstrap address {text!r} has the port {port!r}; 1 to {PORT_MAX} are possible"
        )
    return Address(host, int(port))
