"""Four families of errors, by what the caller must do: retry, reopen, fix the call, stop.

Pure. Every message names the thing and its numbers. Expected refusals of the Kafka protocol are not
errors here: they are returned values.
"""

from typing import Final

import msgspec

NOT_JSON: Final = (msgspec.MsgspecError, UnicodeError)
"""The errors of msgspec for text that is not the expected JSON. Bytes that are not UTF-8 raise a
UnicodeError, which is not one of msgspec's own errors."""


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""


class RetryError(HoldfastError):
    """Nothing is wrong with the call: try it again, later."""


class StoreUnavailable(RetryError):
    """The store did not answer, or cannot now; the outcome of a write is unknown."""


class CredentialsRefused(StoreUnavailable):
    """The store refuses our credentials, or they lack a permission: that may pass."""


class ReopenError(HoldfastError):
    """State that the caller holds is no longer valid: open it again, from the store."""


class Fenced(ReopenError):
    """Another writer owns the lane."""


class ObjectNotFound(ReopenError):
    """The object is not in the store, or no longer: plan the read again."""


class CallError(HoldfastError):
    """The call is wrong, and would be wrong again: fix it."""


class ConfigurationError(CallError):
    """A setting, an option or an address that cannot be used; the message names the remedy."""


class StopError(HoldfastError):
    """Continuing would harm data: stop, and let a person look."""


class CorruptObject(StopError):
    """The bytes of an object are not those that were written."""


class NewerFormat(StopError):
    """The store was written by a release that this one does not understand."""


class InvariantViolation(StopError):
    """The program is in a state that must not exist: this is a bug, and the lane stops."""


def family_of(error: HoldfastError) -> type[HoldfastError]:
    """Return the family of an error, for another message about the same failure."""
    for family in (RetryError, ReopenError, CallError, StopError):
        if isinstance(error, family):
            return family
    return HoldfastError
