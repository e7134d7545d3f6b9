"""A follower of the store of a world."""

from tests.support.brokers import Cluster
from tests.support.stores import HookedStore

from holdfast.follow.follower import StoreFollower
from holdfast.log.rewriter import RewriteSettings

AT_ONCE = RewriteSettings(delete_delay_s=0, segment_bytes_max=3_000)


async def follower_of(world: Cluster, store: HookedStore | None = None) -> StoreFollower:
    follower = StoreFollower(store or world.store_of_its_own(), environment=world.environment())
    await follower.refresh()
    return follower
