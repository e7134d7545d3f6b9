"""The settings of a broker. Names follow Kafka's if Kafka has them."""

import dataclasses

from holdfast.groups.rules import GroupRules
from holdfast.identifiers import BrokerId
from holdfast.lane.pending import GroupSettings
from holdfast.log.rewriter import RewriteSettings
from holdfast.transactions.decide import TransactionRules

LANES_DEFAULT = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """All settings of one broker."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None
    lanes: int | None = None
    """The number of data lanes that a person asked for. A store with another number is refused."""
    lanes_of_new_store: int = LANES_DEFAULT
    """The number of data lanes of a new store if `lanes` is None. Existing stores keep theirs."""
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
    """How long a broker that was here before leaves lanes with the brokers that serve them."""
    producer_id_expiration_ms: int = 86_400_000
