"""A store, and tasks in it, for the tests of this folder."""

from holdfast.environment import SeededEnvironment, VirtualClock
from holdfast.keyed_state.task_site import TaskSite
from holdfast.store.interface import Store
from holdfast.store.memory import MemoryStore

ENVIRONMENT = SeededEnvironment(seed=1, clock=VirtualClock())


def a_store() -> MemoryStore:
    return MemoryStore(environment=ENVIRONMENT)


def site(
    store: Store, *, attempt: str, number: int = 0, bucket: int = 0, sink_id: str = "orders"
) -> TaskSite:
    return TaskSite(
        store=store,
        sink_id=sink_id,
        bucket=bucket,
        number=number,
        attempt=attempt,
        environment=ENVIRONMENT,
    )
