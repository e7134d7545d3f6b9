"""A reader by columns sees of transactions exactly what a consumer of the client sees."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.fetch import PartitionFetch, records_of
from holdfast.columnar.decode import decode
from holdfast.protocol.messages.fetch import AbortedTransaction
from holdfast.records.record import Record, encode_batch

steps = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["records", "records", "plain", "commit", "abort"]),
        st.integers(1, 3),
    ),
    max_size=20,
)


def stream_of(script: list[tuple[int, str, int]]) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The batches of a log, and its aborted transactions as (producer_id, first_offset)."""
    batches: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, int] = {}
    offset = 0
    for producer_id, step, count in script:
        marker = step in ("commit", "abort")
        if marker and producer_id not in open_since:
            continue
        if marker:
            first_offset = open_since.pop(producer_id)
            if step == "abort":
                aborted.append((producer_id, first_offset))
            count = 1
        elif step == "records":
            open_since.setdefault(producer_id, offset)
        key = b"\x00\x00\x00" + bytes([step == "commit"]) if marker else b"k"
        batches.append(
            encode_batch(
                [Record(0, 5, key, b"v")] * count,
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=-1 if marker else 0,
                transactional=step != "plain",
                control=marker,
            )
        )
        offset += count
    return batches, aborted


@given(steps, st.integers(0, 10), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_columns_and_the_client_show_the_same_records(
    script: list[tuple[int, str, int]], start_offset: int, committed: bool, in_pieces: bool
):
    batches, aborted = stream_of(script)
    whole = b"".join(batches)
    fetched = PartitionFetch(
        start_offset,
        memoryview(whole),
        99,
        99,
        0,
        [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted],
    )
    expected = [record.offset for record in records_of(fetched, read_committed=committed)]
    found = decode(
        batches if in_pieces else [whole],
        topic="t",
        partition=0,
        start_offset=start_offset,
        end_offset=2**62,
        read_committed_aborted=aborted if committed else None,
        rows_per_batch=4,
    )
    assert [o for batch in found for o in batch.column("offset").to_pylist()] == expected
