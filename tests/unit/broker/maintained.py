"""A broker with its background work."""

from tests.support.brokers import Cluster

from holdfast.broker.broker import Broker
from holdfast.broker.maintenance import Maintenance

QUICK = {"maintenance_interval_s": 1.0, "retention_check_interval_ms": 10_000}


async def maintained(world: Cluster, **settings: object) -> tuple[Broker, Maintenance]:
    broker = await world.broker(**{**QUICK, **settings})
    maintenance = Maintenance(broker)
    maintenance.start()
    return broker, maintenance
