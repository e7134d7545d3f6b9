"""Apache Kafka's own command line tools, as its users run them."""

import subprocess

from tests.peers.jars import QUICK_START, java_command, kafka_class_path

TOOL_SECONDS_MAX = 90.0
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


def kafka_tool(main: str, bootstrap: str, *arguments: str) -> str:
    """What a tool prints; raises where it fails."""
    command = [java_command(), "-Xmx128m", *QUICK_START, "-cp", kafka_class_path(), main]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{main} {arguments}: {done.stdout[-1500:]} {done.stderr[-1500:]}")
    return done.stdout
