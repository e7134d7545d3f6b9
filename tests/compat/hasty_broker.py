"""`holdfast serve` that calls a batch out of order at once; for tests that must show the harm."""

import sys

from tests.chaos.broker_child import call_gaps_at_once

from holdfast.cli.server import serve


def main() -> None:
    call_gaps_at_once()
    serve.command.main(args=sys.argv[2:], standalone_mode=True)


if __name__ == "__main__":
    main()
