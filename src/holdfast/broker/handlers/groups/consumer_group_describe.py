"""ConsumerGroupDescribe: groups of the new consumer protocol (KIP-848)."""

from holdfast.broker.api import Api
from holdfast.broker.broker import Broker
from holdfast.broker.context import RequestContext
from holdfast.broker.operations import GROUP_OPERATIONS
from holdfast.groups.consumer.consumer_group import ConsumerGroup
from holdfast.groups.consumer.reconciliation import Partitions, by_topic
from holdfast.groups.facts import ConsumerMember
from holdfast.protocol.api import ApiKey, ErrorCode
from holdfast.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedMember,
    DescribedTopicPartitions,
)

API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=range(2),
    deviations=("The response has the extra tagged field of DescribeGroups.",),
)

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def handle(
    broker: Broker, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    del context
    groups = [_described(broker, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(broker: Broker, group_id: str) -> DescribedConsumerGroup:
    groups = broker.groups_of(group_id)
    if isinstance(groups, ErrorCode):
        return DescribedConsumerGroup(error_code=groups, group_id=group_id)
    problem = groups.problem()
    if problem is not None:
        return DescribedConsumerGroup(error_code=problem, group_id=group_id)
    group = groups.coordinator.consumer(group_id)
    if group is None:
        is_classic = groups.coordinator.classic(group_id) is not None
        reason = "is not a consumer group" if is_classic else "not found"
        return DescribedConsumerGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
            group_id=group_id,
        )
    durable = group.durable
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.phase.value,
        holdfast_refused_commits=groups.coordinator.refused_commits.get(group_id, 0),
        group_epoch=durable.group_epoch,
        assignment_epoch=durable.assignment_epoch,
        assignor_name=durable.chosen_assignor(),
        members=[_member(broker, group, member) for member in durable.members.values()],
    )


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> DescribedMember:
    standing = group.durable.standing(member.member_id)
    target = group.durable.target(member.member_id)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=standing.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(broker, standing.assigned),
        target_assignment=_assignment(broker, target.partitions),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(broker: Broker, partitions: Partitions) -> DescribedAssignment:
    """Return partitions by topic, without those of deleted topics, which have no name."""
    found: list[DescribedTopicPartitions] = []
    for owned in by_topic(partitions):
        topic = broker.state.usable(owned.topic_id)
        if topic is not None:
            found.append(
                DescribedTopicPartitions(
                    topic_id=owned.topic_id, topic_name=topic.name, partitions=owned.partitions
                )
            )
    return DescribedAssignment(topic_partitions=found)
