"""The `kafka.` options: what is followed, what has no effect, and what is refused with a remedy."""

import pickle

import pytest

from holdfast.errors import ConfigurationError
from holdfast.spark.source.kafka_options import (
    ClientOptions,
    TlsOptions,
    client_options,
    tls_context,
)

BOOTSTRAP = "broker:9092"


def test_without_options_there_are_defaults():
    assert client_options(BOOTSTRAP, {}) == ClientOptions(bootstrap=BOOTSTRAP)


def test_kafkas_names_set_the_client():
    found = client_options(
        BOOTSTRAP,
        {
            "client.id": "me",
            "request.timeout.ms": "5000",
            "default.api.timeout.ms": "9000",
            "fetch.max.wait.ms": "0",
            "max.partition.fetch.bytes": "1048576",
            "fetch.max.bytes": "33554432",
            "max.poll.records": "10",
        },
    )
    assert found == ClientOptions(
        bootstrap=BOOTSTRAP,
        client_id="me",
        request_timeout_ms=5_000,
        deadline_ms=9_000,
        fetch_wait_ms_max=0,
        fetch_bytes_max=32 << 20,
    )
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(pickle.loads(pickle.dumps(found)))


def test_tls_takes_files_in_pem():
    found = client_options(
        BOOTSTRAP,
        {
            "security.protocol": "ssl",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
            "ssl.key.password": "hush",
            "ssl.endpoint.identification.algorithm": "",
        },
    )
    assert found.tls == TlsOptions(
        ca_file="/ca.pem",
        certificate_file="/me.pem",
        key_file="/me.key",
        key_password="hush",
        checks_host_name=False,
    )
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"security.protocol": "SASL_SSL"}, "no SASL"),
        ({"sasl.mechanism": "PLAIN"}, "no SASL"),
        ({"security.protocol": "TLS"}, "PLAINTEXT and SSL"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "export to PEM"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/a.jks"}, "export it to PEM"),
        ({"ssl.ca.location": "/ca.pem"}, "set it to SSL"),
        ({"fetch.max.byte": "1"}, r"did you mean kafka\.fetch\.max\.bytes"),
        ({"fetch.max.bytes": "0"}, "is 0: it can be 1 to 2147483647"),
        ({"request.timeout.ms": "soon"}, "'soon' is not a duration"),
        ({"fetch.max.bytes": "much"}, "'much' is not a size"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "there are https"),
    ],
)
def test_what_cannot_be_followed_is_refused(options: dict[str, str], message: str):
    with pytest.raises(ConfigurationError, match=message):
        client_options(BOOTSTRAP, options)


def test_a_file_that_is_not_there_is_named_as_a_wrong_setting():
    with pytest.raises(ConfigurationError, match="must be PEM"):
        tls_context(TlsOptions(ca_file="/does/not/exist.pem"))
