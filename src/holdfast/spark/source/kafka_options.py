"""The `kafka.` options of a source as settings of Holdfast's own client.

Pure, except for `tls_context`, which reads the files that it is given. Owns which of Kafka's client
options mean something here. Must never accept an option that changes what is read, or how safely,
and then not follow it: such an option is refused, with the remedy.
"""

import dataclasses
import ssl
from collections.abc import Mapping

from holdfast.errors import ConfigurationError
from holdfast.quantities import duration_ms, size_bytes
from holdfast.suggestion import nearest

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS files in PEM format, as paths on each machine that reads."""

    ca_file: str | None = None
    """The authorities to trust. None: the machine's own list."""
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = dataclasses.field(default=None, repr=False)
    checks_host_name: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach a cluster, and how much to fetch at once."""

    bootstrap: str
    client_id: str = "holdfast-spark"
    request_timeout_ms: int = 30_000
    deadline_ms: int = 120_000
    """How long leader changes and restarts are waited for."""
    fetch_bytes_max: int = 8 * MIB
    fetch_wait_ms_max: int = 500
    tls: TlsOptions | None = None


_NUMBERS = {
    "request.timeout.ms": ("request_timeout_ms", 1),
    "default.api.timeout.ms": ("deadline_ms", 1),
    "fetch.max.wait.ms": ("fetch_wait_ms_max", 0),
}
_FETCH_SIZES = ("max.partition.fetch.bytes", "fetch.max.bytes")
_TLS = {
    "ssl.ca.location": "ca_file",
    "ssl.truststore.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
}
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_WITHOUT_EFFECT = frozenset(
    {
        *("fetch.min.bytes", "receive.buffer.bytes", "send.buffer.bytes", "max.poll.records"),
        *("check.crcs", "metadata.max.age.ms", "client.dns.lookup", "connections.max.idle.ms"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"),
        *(
            "retry.backoff.max.ms",
            "socket.connection.setup.timeout.ms",
            "auto.include.jmx.reporter",
        ),
        *("socket.connection.setup.timeout.max.ms", "enable.metrics.push", "metric.reporters"),
        *("allow.auto.create.topics", "exclude.internal.topics", "metrics.num.samples"),
        *("metrics.recording.level", "metrics.sample.window.ms", "isolation.level", "client.rack"),
    }
)
"""Options that tune a Java consumer. They change nothing of what is read."""
CLIENT_NAMES = (
    *("client.id", "security.protocol", "ssl.endpoint.identification.algorithm"),
    *_NUMBERS,
    *_FETCH_SIZES,
    *_TLS,
    *_STORE_TYPES,
)


def client_options(bootstrap: str, options: Mapping[str, str]) -> ClientOptions:
    """Return the settings for Kafka's option names, which are without the prefix `kafka.`.

    Raises ConfigurationError for an option that cannot be followed, and names it.
    """
    left = {name.lower(): value for name, value in options.items()}
    found = ClientOptions(bootstrap=bootstrap, tls=_tls(left))
    changes: dict[str, str | int] = {}
    if "client.id" in left:
        changes["client_id"] = left.pop("client.id")
    for name, (field, least) in _NUMBERS.items():
        if name in left:
            changes[field] = _bounded(name, _milliseconds(name, left.pop(name)), least)
    sizes = [
        _bounded(name, _bytes(name, left.pop(name)), 1) for name in _FETCH_SIZES if name in left
    ]
    if sizes:
        # Kafka's default for one partition is small, so that many can share a response. Here a
        # fetch is for one partition, so the larger of the two is what the user meant.
        changes["fetch_bytes_max"] = max(sizes)
    for name in left:
        if name not in _WITHOUT_EFFECT:
            raise ConfigurationError(_refusal(name))
    return dataclasses.replace(found, **changes)


def _tls(left: dict[str, str]) -> TlsOptions | None:
    """Take the TLS options out of `left` and return them."""
    protocol = left.pop("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        raise ConfigurationError(
            f"kafka.security.protocol={protocol}: this client has no SASL; use PLAINTEXT, or SSL"
            " with a client certificate (kafka.ssl.certificate.location, kafka.ssl.key.location)"
        )
    if protocol not in ("PLAINTEXT", "SSL"):
        raise ConfigurationError(f"kafka.security.protocol={protocol}: there are PLAINTEXT and SSL")
    files: dict[str, str] = {}
    for name, field in _TLS.items():
        if name in left:
            files[field] = left.pop(name)
    for name in _STORE_TYPES:
        kind = left.pop(name, "PEM").upper()
        if kind != "PEM":
            raise ConfigurationError(
                f"kafka.{name}={kind}: Java's key stores cannot be read here; export to PEM, and"
                " name the files in kafka.ssl.ca.location, kafka.ssl.certificate.location and"
                " kafka.ssl.key.location"
            )
    for field, path in files.items():
        if field != "key_password" and path.lower().endswith((".jks", ".p12", ".pfx")):
            raise ConfigurationError(
                f"{path!r} looks like a key store of Java; export it to PEM, and name that file"
            )
    algorithm = left.pop("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise ConfigurationError(
            f"kafka.ssl.endpoint.identification.algorithm={algorithm}: there are https, and an"
            " empty one, which does not check the host's name"
        )
    if protocol == "PLAINTEXT":
        if files:
            raise ConfigurationError(
                "kafka.ssl options are set, but kafka.security.protocol is PLAINTEXT: set it to SSL"
            )
        return None
    return TlsOptions(**files, checks_host_name=algorithm == "https")


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context of a connection; ConfigurationError if a file cannot be used."""
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.certificate_file is not None:
            context.load_cert_chain(
                options.certificate_file, options.key_file, options.key_password
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the files of kafka.ssl options cannot be used ({error}): they must be PEM, and be"
            " there on the driver and on every executor"
        ) from error
    context.check_hostname = options.checks_host_name
    return context


def _milliseconds(name: str, text: str) -> int:
    try:
        return duration_ms(text, bare_is_ms=True)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"kafka.{name}: {wrong}, or as milliseconds") from wrong


def _bytes(name: str, text: str) -> int:
    try:
        return size_bytes(text)
    except ConfigurationError as wrong:
        raise ConfigurationError(f"kafka.{name}: {wrong}, or as a number of bytes") from wrong


def _bounded(name: str, number: int, least: int) -> int:
    if not least <= number < 2**31:
        raise ConfigurationError(f"kafka.{name} is {number}: it can be {least} to {2**31 - 1}")
    return number


def _refusal(name: str) -> str:
    if name.startswith("sasl."):
        return f"kafka.{name}: this client has no SASL; use PLAINTEXT, or SSL with a certificate"
    close = nearest(name, [*CLIENT_NAMES, *_WITHOUT_EFFECT, "bootstrap.servers"])
    hint = f"did you mean kafka.{close}?" if close else f"there are {', '.join(CLIENT_NAMES)}"
    return f"kafka.{name} is not an option of this client: {hint}"
