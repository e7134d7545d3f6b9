"""The two clients of one store, which are replaced when its credentials change.

Owns which clients are current. Many threads use them, and a thread may go on with a client that was
replaced. Must never replace clients by equal ones, which would close connections for nothing.
"""

import logging
import threading
from collections.abc import Mapping

from holdfast.environment import Environment
from holdfast.errors import ConfigurationError
from holdfast.store.credentials import Credentials, find_credentials
from holdfast.store.object_address import (
    Client,
    ObjectAddress,
    check_sendable,
    make_client,
)

RENEW_S_MIN = 5.0
"""The shortest time between two renewals that each ask a token service."""

log = logging.getLogger("holdfast.store")


class ObjectClients:
    """The client that creates, without retries, and the client for everything else."""

    def __init__(
        self, address: ObjectAddress, variables: Mapping[str, str], *, environment: Environment
    ) -> None:
        self.address = address
        self._variables = variables
        self._environment = environment
        self._lock = threading.Lock()
        self._renewed = float("-inf")
        self._told = ""
        self.credentials = self._found()
        self.creator, self.reader = self._made(self.credentials)

    def renew(self) -> None:
        """Look for credentials again, after a refusal. Any thread may call this."""
        with self._lock:
            try:
                found = self._found()
            except ConfigurationError as error:
                # A file may be half written, or gone for a moment: keep what we have.
                if str(error) != self._told:
                    self._told = str(error)
                    log.warning("credentials_not_found store=%s: %s", self.address.url, error)
                return
            if found.are_fixed and found == self.credentials:
                return
            now = self._environment.monotonic()
            if not found.are_fixed and now - self._renewed < RENEW_S_MIN:
                return
            self._renewed = now
            self.creator, self.reader = self._made(found)
            self.credentials = found
            self._told = ""
            log.info("credentials_renewed store=%s from=%s", self.address.url, found.source)

    def _found(self) -> Credentials:
        if "skip_signature" in self.address.options:
            return Credentials(source="none, because skip_signature is set")
        found = find_credentials(self.address.scheme, self._variables)
        check_sendable(found.config, found.source)
        return found

    def _made(self, credentials: Credentials) -> tuple[Client, Client]:
        def client(*, has_retries: bool) -> Client:
            return make_client(self.address, self._variables, credentials, has_retries=has_retries)

        return client(has_retries=False), client(has_retries=True)
