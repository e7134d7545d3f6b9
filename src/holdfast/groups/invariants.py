"""What is always true of a consumer group: named predicates, each with the problem or None.

Pure. The simulation asks all of them after each change. Must never change or repair anything.
"""

from collections.abc import Iterator

from holdfast.groups.state import Group


def speaks_one_protocol(group: Group) -> str | None:
    """A group is a classic group or a consumer group, and never both."""
    if group.generation is not None and group.consumers is not None:
        return "it has a classic generation and members of a consumer group"
    return None


def owners_are_members(group: Group) -> str | None:
    """The owner of a partition is a member."""
    if group.consumers is not None:
        members = group.consumers.members.keys()
        strangers = set(group.consumers.owners.values()) - members
    else:
        members = group.generation.members.keys() if group.generation is not None else set[str]()
        strangers = set(group.owners.values()) - members
    return f"{sorted(strangers)} own partitions and are not members" if strangers else None


def targets_name_members(group: Group) -> str | None:
    """The target assignment names members, and no partition twice."""
    consumers = group.consumers
    if consumers is None:
        return None
    strangers = consumers.targets.keys() - consumers.members.keys()
    if strangers:
        return f"the target assignment names {sorted(strangers)}, which are not members"
    given = [partition for target in consumers.targets.values() for partition in target]
    if len(given) != len(set(given)):
        return "the target assignment gives a partition to two members"
    return None


def assignment_epoch_is_not_ahead(group: Group) -> str | None:
    """The assignment epoch follows the group epoch."""
    consumers = group.consumers
    if consumers is None or consumers.assignment_epoch <= consumers.group_epoch:
        return None
    return f"assignment epoch {consumers.assignment_epoch}, group epoch {consumers.group_epoch}"


def problems(group: Group) -> Iterator[str]:
    """Yield what is wrong with a group."""
    for predicate in (
        speaks_one_protocol,
        owners_are_members,
        targets_name_members,
        assignment_epoch_is_not_ahead,
    ):
        problem = predicate(group)
        if problem is not None:
            yield f"group {group.group_id}: {problem}"
