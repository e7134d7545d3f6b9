"""IncrementalAlterConfigs (44), versions 0 to 1.

Changes the configurations that are named, and leaves the others. APPEND and SUBTRACT start from
the value that counts, so also from a default.
Deviations: a broker's settings are chosen at its start, so altering a broker is refused.
"""

from collections import Counter

from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext, error_code
from holdfast.broker.handlers.alter_configs import alter, change_problem, duplicate_resource
from holdfast.broker.topic_creation import WAIT_MS_DEFAULT, control_durable
from holdfast.cluster.facts import TopicConfigured
from holdfast.cluster.state import Topic
from holdfast.cluster.topics import (
    ConfigChange,
    ConfigOperation,
    TopicRefused,
    decide_config_changes,
)
from holdfast.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    del context
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    decided: dict[tuple[int, str], TopicRefused | None] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        decided[key] = duplicate_resource(*key, times[key]) or alter(
            broker, *key, lambda topic, r=resource: _change(topic, r), request.validate_only
        )
    failed = None
    if not request.validate_only:
        failed = await control_durable(broker, WAIT_MS_DEFAULT)
    return IncrementalAlterConfigsResponse(
        responses=[_result(*key, refused or failed) for key, refused in decided.items()]
    )


def _change(topic: Topic, resource: AlterConfigsResource) -> TopicConfigured | TopicRefused:
    for config in resource.configs:
        if config.config_operation not in ConfigOperation.__members__.values():
            return TopicRefused(
                "INVALID_REQUEST",
                f"topic {topic.name}, {config.name[:200]}: Unknown operation type"
                f" {config.config_operation}",
            )
    problem = change_problem(
        topic,
        [config.name for config in resource.configs],
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        ],
    )
    if problem is not None:
        return problem
    return decide_config_changes(
        topic,
        [
            ConfigChange(c.name, ConfigOperation(c.config_operation), c.value or "")
            for c in resource.configs
        ],
    )


def _result(
    resource_type: int, name: str, refused: TopicRefused | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error_code(refused.error if refused is not None else "NONE"),
        error_message=refused.message if refused is not None else None,
        resource_type=resource_type,
        resource_name=name,
    )
