"""What a person is told where a master does not answer, or the code of a transform fails."""

import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from tests.peers.process import free_port

from holdfast.errors import ConfigurationError
from holdfast.spark.pipelines.preflight import MasterUnavailable, check_master
from holdfast.spark.pipelines.query_failure import failure_of
from holdfast.spark.pipelines.transform import load_transform


@pytest.mark.parametrize(
    "answer", [b"\0\0\0\0\0\0\0\x0d\x08\0\0\0\0", b""], ids=["says", "hangs up"]
)
def test_masters_are_tried_in_turn_and_one_that_answers_is_enough(answer: bytes):
    dead = f"127.0.0.1:{free_port()}"
    with pytest.raises(MasterUnavailable, match=f"no Spark master answers at spark://{dead} "):
        check_master(f"spark://{dead}")
    asked: list[bytes] = []

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            asked.append(connection.recv(1_000))
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        master = threading.Thread(target=serve, args=(server,))
        master.start()
        check_master(f"spark://{dead},127.0.0.1:{server.getsockname()[1]}")
        master.join()
    assert int.from_bytes(asked[0][:8]) == len(asked[0]), "a whole frame of Spark's"
    with pytest.raises(ConfigurationError, match="spark://host:7077"):
        check_master("spark://nowhere")
    check_master("local[2]")
    check_master("k8s://https://127.0.0.1:1")


def test_a_port_that_accepts_and_stays_silent_is_no_master():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = rf"answers at spark://{address} \({address}: no answer within 0.2 s\): start one"
        with pytest.raises(MasterUnavailable, match=words):
            check_master(f"spark://{address}", silence_s_max=0.2)


def test_a_failure_in_a_task_says_the_last_line_of_the_users_file():
    text = (
        'Traceback (most recent call last):\n  File "/home/me/steps.py", line 3, in outer\n'
        '  File "/home/me/steps.py", line 9, in inverse\n    return 1 / n\n'
        '  File "/lib/pyspark/worker.py", line 1, in main\nZeroDivisionError: division by zero\n'
    )
    told = str(failure_of(RuntimeError(text), "/home/me/steps.py"))
    place = "steps.py, line 9, in inverse"
    assert told == f"the query failed in {place}: ZeroDivisionError: division by zero"
    assert str(failure_of(RuntimeError(text))).startswith("the query failed: ZeroDivisionError")


def test_a_function_that_fails_on_the_driver_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "failing_steps.py"
    path.write_text("def pipeline(frame):\n    wrong = {}\n    return wrong['key']\n")
    transform = load_transform(path)
    with pytest.raises(ConfigurationError, match=r"failing_steps\.py, line 3, in pipeline: KeyErr"):
        transform(cast(Any, None))
