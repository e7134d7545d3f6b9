"""The declarations of the handlers: each is found, agrees with its messages, and stands alone."""

import typing
from types import ModuleType

import pytest

from holdfast.broker.api import Api
from holdfast.broker.endpoints import BETWEEN_BROKERS, ENDPOINTS, SERVED, Endpoint, endpoints_of
from holdfast.errors import InvariantViolation
from holdfast.protocol.api import ApiKey

EACH = pytest.mark.parametrize(
    "endpoint", ENDPOINTS.values(), ids=lambda each: each.api.key.name.lower()
)
OURS_SINCE = 10_000


def handler(name: str, **values: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update({"handle": lambda broker, request, context: None, **values})
    return module


PRODUCE = Api(key=ApiKey.PRODUCE, versions=range(3, 14))


@EACH
def test_a_handler_takes_the_request_of_the_key_that_it_declares(endpoint: Endpoint):
    hints = typing.get_type_hints(endpoint.handle)
    assert list(hints) == ["broker", "request", "context", "return"]
    assert hints["request"] is endpoint.request
    assert endpoint.request.API_KEY == endpoint.response.API_KEY == endpoint.api.key


@EACH
def test_deviations_are_sentences_that_fit_into_a_table(endpoint: Endpoint):
    for deviation in endpoint.api.deviations:
        assert deviation.endswith(".")
        assert not set("|\n") & set(deviation)
        assert "  " not in deviation


def test_apis_between_brokers_are_served_but_not_listed():
    assert {
        *(key for key in ApiKey if key >= OURS_SINCE),
        ApiKey.ALLOCATE_PRODUCER_IDS,
    } == BETWEEN_BROKERS
    assert all(SERVED.find(key) for key in BETWEEN_BROKERS)
    listed = [each.api_key for each in SERVED.entries()]
    assert listed == sorted(set(ENDPOINTS) - BETWEEN_BROKERS)


def test_a_key_that_is_declared_twice_is_refused():
    modules = [("data", handler("first", API=PRODUCE)), ("groups", handler("second", API=PRODUCE))]
    with pytest.raises(InvariantViolation, match=r"PRODUCE is declared by .* and second"):
        endpoints_of(modules)


def test_a_module_without_a_declaration_is_refused():
    with pytest.raises(InvariantViolation, match="stray lacks a declaration"):
        endpoints_of([("data", handler("stray"))])


def test_an_api_without_messages_is_refused():
    api = Api(key=ApiKey.LEADER_AND_ISR, versions=range(1))
    with pytest.raises(InvariantViolation, match="LEADER_AND_ISR has no messages"):
        endpoints_of([("data", handler("no_messages", API=api))])
