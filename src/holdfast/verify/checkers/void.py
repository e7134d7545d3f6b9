"""Decides whether a run is void: no faults, no hand-offs, or too few successful calls.

Pure. A void run proves nothing. It has neither passed nor failed; it is counted and shown.
"""

from holdfast.verify.history import History, LandedKind, MarkerKind, Outcome

OK_SHARE_MIN = 0.5


def hand_offs(history: History) -> int:
    """Return how often a lane got another owner after its first one."""
    claims = [landing for landing in history.landings if landing.kind is LandedKind.CLAIM]
    by_landing = len(claims) - len({landing.lane for landing in claims})
    by_marker = sum(1 for marker in history.markers if marker.kind is MarkerKind.CLAIM) - 1
    return max(by_landing, by_marker, 0)


def fault_count(history: History) -> int:
    """Return the number of faults, kills and pauses together."""
    kinds = (MarkerKind.FAULT, MarkerKind.KILL, MarkerKind.PAUSE)
    return sum(1 for marker in history.markers if marker.kind in kinds)


def ok_share(history: History) -> float:
    """Return the share of the answered calls that were ok."""
    answered = [call for call in history.calls if call.completed >= 0]
    return sum(call.outcome is Outcome.OK for call in answered) / max(len(answered), 1)


def void_reason(history: History) -> str | None:
    """Return why the run proves nothing, or None if it proves something."""
    if not fault_count(history):
        return "no faults"
    if not hand_offs(history):
        return "no hand-offs"
    share = ok_share(history)
    if share < OK_SHARE_MIN:
        return f"only {share:.0%} of the calls were ok"
    return None
