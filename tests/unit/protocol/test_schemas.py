"""The table of messages: each module has one request and its response, of a key of its own."""

from types import ModuleType

import pytest

from holdfast.errors import InvariantViolation
from holdfast.protocol.messages import fetch, produce
from holdfast.protocol.messages.produce import ProduceRequest, ProduceResponse
from holdfast.protocol.schemas import SCHEMAS, schemas_of


def test_the_request_comes_before_its_response():
    assert schemas_of([fetch, produce])[0] == (ProduceRequest, ProduceResponse)
    for key, (request, response) in SCHEMAS.items():
        assert request.__name__.endswith("Request")
        assert response.__name__.endswith("Response")
        assert request.API_KEY == response.API_KEY == key


def test_two_modules_with_the_messages_of_one_key_are_refused():
    with pytest.raises(InvariantViolation, match="PRODUCE has messages in"):
        schemas_of([produce, fetch, produce])


def test_a_module_without_messages_is_refused():
    with pytest.raises(InvariantViolation, match="empty must have one request"):
        schemas_of([ModuleType("empty")])
