"""AlterConfigs: replace all configurations of topics.

Those that are not named go back to their defaults.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.broker.api import Api, ToController
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, control_durable, controller_refusal
from holdfast.cluster.facts import TopicConfigured
from holdfast.cluster.state import Topic
from holdfast.cluster.topics import decide_configs
from holdfast.identifiers import topic_name_problem
from holdfast.protocol.api import ApiKey, ErrorCode, Refused
from holdfast.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=range(3),
    deviations=(
        "A request to change a broker's settings is refused: they are set when it starts.",
    ),
    forward_to=ToController(),
)

TOPIC, BROKER = 2, 4


async def handle(
    broker: Broker, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    del context
    changes = [
        Alteration(r.resource_type, r.resource_name, partial(_replace, r))
        for r in request.resources
    ]
    decided = await alter_all(broker, changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=refused.error if refused else ErrorCode.NONE,
                error_message=refused.message if refused else None,
                resource_type=resource_type,
                resource_name=name,
            )
            for (resource_type, name), refused in decided.items()
        ]
    )


def _replace(resource: AlterConfigsResource, topic: Topic) -> TopicConfigured | Refused:
    problem = change_problem(
        topic,
        [config.name for config in resource.configs],
        [config.name for config in resource.configs if config.value is None],
    )
    if problem is not None:
        return problem
    return decide_configs(topic, {config.name: config.value for config in resource.configs})


class Alteration(NamedTuple):
    """The wanted change of one resource's configurations."""

    resource_type: int
    name: str
    change: Callable[[Topic], TopicConfigured | Refused]


async def alter_all(
    broker: Broker, alterations: Sequence[Alteration], *, validate_only: bool
) -> dict[tuple[int, str], Refused | None]:
    """Decide each resource, and wait until the changes are durable.

    AlterConfigs and IncrementalAlterConfigs share this.
    """
    times = Counter((wanted.resource_type, wanted.name) for wanted in alterations)
    decided: dict[tuple[int, str], Refused | None] = {}
    for wanted in alterations:
        key = (wanted.resource_type, wanted.name)
        decided[key] = _duplicate(*key, times[key]) or _alter(broker, wanted, validate_only)
    failed = None if validate_only else await control_durable(broker, WAIT_MS_DEFAULT)
    return {key: refused or failed for key, refused in decided.items()}


def _duplicate(resource_type: int, name: str, times: int) -> Refused | None:
    """Return a refusal if a resource is in the request more than once."""
    if times == 1:
        return None
    return Refused(
        ErrorCode.INVALID_REQUEST,
        "Each resource must appear at most once:"
        f" {name[:249]!r} of type {resource_type} is {times} times in the request",
    )


def _alter(broker: Broker, wanted: Alteration, validate_only: bool) -> Refused | None:
    """Decide the change of one resource; add it to the control lane unless `validate_only`."""
    name = wanted.name
    if wanted.resource_type == BROKER:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"broker {name[:80]!r}: its settings are chosen when it starts and cannot be altered",
        )
    if wanted.resource_type != TOPIC:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"resource type {wanted.resource_type}: only topics (2) have configurations to alter",
        )
    refused = controller_refusal(broker)
    if refused is not None:
        return refused
    if not name:
        return Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    topic = broker.state.topic_named(name)
    if topic is None:
        problem = topic_name_problem(name)
        if problem is not None:
            return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    fact = wanted.change(topic)
    if isinstance(fact, Refused):
        return fact
    if not validate_only and fact.configs != topic.configs:
        broker.control.add(fact)
    return None


def change_problem(
    topic: Topic, names: Sequence[str], without_value: Sequence[str]
) -> Refused | None:
    """Return the refusal of duplicate names and missing values, for both kinds of altering."""
    twice = [name[:200] for name, times in Counter(names).items() if times > 1]
    if twice:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name}: duplicate config keys: {', '.join(twice[:10])}",
        )
    if without_value:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name}: Null value not supported for:"
            f" {', '.join(name[:200] for name in without_value[:10])}",
        )
    return None
