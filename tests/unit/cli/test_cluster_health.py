"""`holdfast cluster health` beside real brokers: its verdicts and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.holdfast_cluster import HoldfastCluster
from tests.peers.process import wait_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


def health(bootstrap: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [HOLDFAST, "cluster", "health", "--bootstrap", bootstrap, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.timeout(180)
def test_the_verdict_follows_the_cluster_from_healthy_to_nobody_there(tmp_path):
    brokers = HoldfastCluster(tmp_path, brokers=2, lanes=4).start()
    first, second = brokers.brokers[1], brokers.brokers[2]
    try:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 8)]).values():
            future.result(30)
        wait_until(lambda: health(first.bootstrap)[0] == 0, seconds_max=60, what="healthy")
        code, text = health(first.bootstrap)
        assert (code, text.splitlines()[-1]) == (0, "healthy")
        assert "partitions  8 of 8 have a leader" in text
        assert "lanes       5 of 5 have an owner" in text
        second.kill()
        wait_until(lambda: health(first.bootstrap)[0] == 1, seconds_max=60, what="degraded")
        code, text = health(first.bootstrap, "--json")
        found = json.loads(text)
        assert (code, found["verdict"], found["problems"]) == (1, "degraded", [])
        assert found["warnings"] == [f"broker 2 at 127.0.0.1:{second.port} does not answer"]
        assert found["brokers"] == {"1": "up", "2": "does not answer"}
        first.kill()
        code, text = health(first.bootstrap)
        assert code == 2
        assert text.startswith("unhealthy: no broker can be reached at ")
        assert json.loads(health(first.bootstrap, "--json")[1])["verdict"] == "unhealthy"
    finally:
        brokers.stop()
