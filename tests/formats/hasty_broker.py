"""A broker that rewrites its lanes often: a small store of it has segments, snapshots and floors.

PYTHONPATH=<release>/src python -m tests.formats.hasty_broker serve --store DIRECTORY ...
"""

from holdfast.broker import settings
from holdfast.cli.main import main
from holdfast.log.rewriter import RewriteSettings

HASTE = RewriteSettings(entries_max=20, delete_delay_s=2.0)


def hasten() -> None:
    defaults = settings.BrokerSettings.__init__.__kwdefaults__
    defaults |= {"snapshot_every": 15, "maintenance_interval_s": 0.2, "rewrite": HASTE}


if __name__ == "__main__":
    hasten()
    main()
