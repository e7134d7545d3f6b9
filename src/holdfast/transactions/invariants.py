"""What is always true of a transactional id: named predicates, each with the problem or None.

Pure. The simulation asks all of them after each change. Must never change or repair anything.
"""

from collections.abc import Iterator

from holdfast.transactions.state import Transaction, TransactionPhase


def marker_is_pending_only_while_ending(known: Transaction) -> str | None:
    """There is a marker to write exactly while the transaction ends."""
    if (known.marker is not None) == known.phase.is_ending:
        return None
    return f"its phase is {known.phase.value}, and its marker is {known.marker}"


def participants_are_of_an_open_transaction(known: Transaction) -> str | None:
    """Only a transaction that is open or ending has partitions and groups."""
    has_participants = bool(known.partitions or known.groups)
    if known.phase.is_ending or known.phase is TransactionPhase.ONGOING or not has_participants:
        return None
    return f"its phase is {known.phase.value}, and it has {len(known.partitions)} partitions"


def marker_fences_no_later_producer(known: Transaction) -> str | None:
    """A marker is never of a later epoch than the producer that continues under the same id."""
    marker = known.marker
    if marker is None or marker.producer_id != known.producer_id:
        return None
    if marker.producer_epoch <= known.producer_epoch:
        return None
    return f"its marker has epoch {marker.producer_epoch}, its producer {known.producer_epoch}"


def problems(known: Transaction) -> Iterator[str]:
    """Yield what is wrong with a transactional id."""
    for predicate in (
        marker_is_pending_only_while_ending,
        participants_are_of_an_open_transaction,
        marker_fences_no_later_producer,
    ):
        problem = predicate(known)
        if problem is not None:
            yield f"transactional id {known.transactional_id}: {problem}"
