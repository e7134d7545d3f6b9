"""How a broker is set up. Names follow Kafka's where Kafka has them."""

import dataclasses

from holdfast.groups.rules import GroupRules
from holdfast.identifiers import BrokerId
from holdfast.lane.appender import GroupSettings
from holdfast.log.rewriter import RewriteSettings
from holdfast.transactions.decide import TransactionRules

LANES_DEFAULT = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """All that can be chosen."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None
    lanes: int | None = None
    """What a person asked for; a store that was made with another number is refused."""
    lanes_of_new_store: int = LANES_DEFAULT
    """Where nobody asked; an existing store says itself how many it has."""
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    group: GroupSettings = dataclasses.field(default_factory=GroupSettings)
    groups: GroupRules = dataclasses.field(default_factory=GroupRules)
    transactions: TransactionRules = dataclasses.field(default_factory=TransactionRules)
    rewrite: RewriteSettings = dataclasses.field(default_factory=RewriteSettings)
    snapshot_every: int = 500
    tail_bytes: int = 512 * 1024 * 1024
    cache_bytes: int = 128 * 1024 * 1024
    fetch_bytes_max: int = 55 * 1024 * 1024
    fetch_sessions_max: int = 1_000
    maintenance_interval_s: float = 5.0
    retention_check_interval_ms: int = 300_000
    rejoin_wait_s: float = 0.0
    """How long a broker that was here before leaves lanes with who serves them."""
    producer_id_expiration_ms: int = 86_400_000
