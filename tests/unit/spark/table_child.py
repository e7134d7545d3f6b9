"""A process that carries entries over to a table, and is gone at a chosen step."""

import os
import sys
from pathlib import Path

from tests.unit.spark.followed import Crashing, World


def main() -> None:
    kind, folder, step = sys.argv[1:]
    world = World(kind, Path(folder))
    follower = Crashing(world.follower(), step, lambda: os._exit(9))
    follower.catch_up(world.sink.ledger())


if __name__ == "__main__":
    main()
