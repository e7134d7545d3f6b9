"""Where a chaos run keeps its log: a directory, or a bucket of a real S3 server.

Owns the S3 server it starts. `moved` gives the same log under an address that no broker used.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.peers.seaweedfs import SeaweedFs


class ChaosStore:
    """The address of a store, and the variables that a process needs to reach it."""

    def __init__(self, url: str, variables: dict[str, str]) -> None:
        self.url = url
        self.variables = variables

    def moved(self) -> "ChaosStore":
        """The store alone: a directory gets another name, so nothing beside it can be of use."""
        if self.variables:
            return self
        old = Path(self.url)
        new = old.with_name(f"{old.name}-cold")
        old.rename(new)
        return ChaosStore(str(new), {})


@contextlib.contextmanager
def chaos_store(kind: str, folder: Path) -> Iterator[ChaosStore]:
    if kind == "directory":
        yield ChaosStore(str(folder / "store"), {})
        return
    with SeaweedFs(folder / "seaweedfs") as server:
        yield ChaosStore(server.url("chaos"), server.variables)
