"""A real broker for the tests of your own project, in place of a Kafka in a container.

`with holdfast.testing.broker() as broker:` starts one; the pytest plugin has the fixture
`holdfast_broker`. Nothing here is used by Holdfast itself.
"""

from holdfast.testing.brokers import BrokerNotReady, RunningBroker, broker

__all__ = ["BrokerNotReady", "RunningBroker", "broker"]
