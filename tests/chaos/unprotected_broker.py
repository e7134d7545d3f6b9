"""`holdfast serve` with the protection of acks from a disk switched off; for tests that must fail.

Whoever takes a lane goes on from what the store has, and forgets that a disk may have more: what
seed 000 tells of.
"""

import sys

from holdfast.cli.server import serve
from holdfast.log.partition import PartitionLog


def main() -> None:
    PartitionLog.awaits_claim = property(lambda _: None)  # pyright: ignore[reportAttributeAccessIssue]
    serve.command.main(args=sys.argv[2:], standalone_mode=True)


if __name__ == "__main__":
    main()
