"""What a checkpoint says of a micro-batch, and when it is not believed."""

import json

import pytest

from holdfast.spark.ledger.checkpoint import Checkpoint, OffsetLogReplaced


def logged(*ends: str) -> str:
    return "\n".join(["v1", json.dumps({"batchTimestampMs": 1}), *ends])


def checkpoint(ends: dict[int, str], running: list[str] | None) -> Checkpoint:
    files = {f"offsets/{n}": logged(end) for n, end in ends.items()}
    files["metadata"] = json.dumps({"id": "query"})
    return Checkpoint("folder", files.get, lambda query_id: running)


def test_a_micro_batch_goes_from_the_end_of_the_one_before_to_its_own_end():
    batch = checkpoint({0: "10", 1: "20"}, ["20"]).micro_batch(1, None)
    assert [(source.start, source.end) for source in batch.sources] == [("10", "20")]
    assert (batch.query_id, batch.batch_id) == ("query", 1)


def test_a_log_that_another_driver_wrote_over_is_not_believed():
    with pytest.raises(OffsetLogReplaced, match=r"ends at 25; the one that runs here ends at 20"):
        checkpoint({0: "10", 1: "25"}, ["20"]).micro_batch(1, None)


def test_a_query_that_does_not_run_here_is_not_asked():
    assert checkpoint({0: "10"}, None).micro_batch(0, None).sources[0].end == "10"
