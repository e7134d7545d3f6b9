"""Record batches that must not get into the log, and requests around them that make no sense."""

from collections.abc import Callable
from uuid import UUID

from tests.hostile.case import Case, Target, one_of, told
from tests.support.hostile_bytes import batch

from holdfast.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

VERSION = 9
TOPIC_ID_VERSION = 13
GOOD = batch(b"good")
NO_ID = UUID(int=0)
INVALID = "INVALID_RECORD"
CORRUPT = "CORRUPT_MESSAGE"
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
EARLY = "NOT_ENOUGH_REPLICAS"


def produce(
    records: bytes | None = GOOD,
    *,
    topic: str = "target",
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 10_000,
    topic_id: UUID = NO_ID,
    times: int = 1,
) -> ProduceRequest:
    view = None if records is None else memoryview(records)
    data = [PartitionProduceData(index=partition, records=view) for _ in range(times)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def refused(name: str, records: bytes | None, code: str) -> Case:
    return told(name, VERSION, produce(records), code)


def _sequenced(
    *steps: tuple[int, int], epochs: tuple[int, ...] = ()
) -> list[Callable[[Target], ProduceRequest]]:
    """Batches of (first sequence, count) of one new producer, the last of which is the case."""
    known: dict[int, int] = {}

    def build(index: int, sequence: int, count: int) -> Callable[[Target], ProduceRequest]:
        def built(target: Target) -> ProduceRequest:
            if index == 0:
                known[0] = target.producer_id()
            values = [b"%d" % (sequence + i) for i in range(count)]
            return produce(
                batch(
                    *values,
                    producer_id=known[0],
                    producer_epoch=epochs[index] if epochs else 0,
                    base_sequence=sequence,
                )
            )

        return built

    return [build(i, sequence, count) for i, (sequence, count) in enumerate(steps)]


def sequence(name: str, *steps: tuple[int, int], codes: tuple[str, ...], epochs=()) -> Case:
    *before, last = _sequenced(*steps, epochs=epochs)
    return told(name, VERSION, last, *codes, before=tuple(before))


_BATCHES: dict[str, tuple[bytes | None, str]] = {
    "null records": (None, INVALID),
    "no bytes of records": (b"", INVALID),
    "one byte of records": (b"\x00", INVALID),
    "records of 16 bytes": (GOOD[:16], INVALID),
    "records of 60 bytes": (GOOD[:60], INVALID),
    "a batch without its last byte": (GOOD[:-1], INVALID),
    "two batches": (GOOD + GOOD, INVALID),
    "a batch and one byte": (GOOD + b"\x00", INVALID),
    "magic 0": (batch(b"x", magic=0), INVALID),
    "magic 1": (batch(b"x", magic=1), INVALID),
    "magic 3": (batch(b"x", magic=3), CORRUPT),
    "magic 127": (batch(b"x", magic=127), CORRUPT),
    "a wrong CRC": (batch(b"x", crc=1), CORRUPT),
    "a CRC of zero": (batch(b"x", crc=0), CORRUPT),
    "a flipped bit in the value": (GOOD[:-2] + bytes([GOOD[-2] ^ 1]) + GOOD[-1:], CORRUPT),
    "a control batch": (batch(b"x", attributes=0x20), INVALID),
    "a transactional control batch": (batch(b"x", attributes=0x30), INVALID),
    "a transactional batch without a producer": (batch(b"x", attributes=0x10), INVALID),
    "the mark of log append time": (batch(b"x", attributes=0x08), "INVALID_TIMESTAMP"),
    "codec 5": (batch(b"x", attributes=5), "UNSUPPORTED_COMPRESSION_TYPE"),
    "codec 6": (batch(b"x", attributes=6), "UNSUPPORTED_COMPRESSION_TYPE"),
    "codec 7": (batch(b"x", attributes=7), "UNSUPPORTED_COMPRESSION_TYPE"),
    "a base offset of 1": (batch(b"x", base_offset=1), INVALID),
    "a negative base offset": (batch(b"x", base_offset=-5), INVALID),
    "the highest base offset": (batch(b"x", base_offset=2**63 - 1), INVALID),
    "no records in the batch": (batch(body=b"", count=0, last_offset_delta=-1), INVALID),
    "a count of zero": (batch(b"x", count=0, last_offset_delta=0), INVALID),
    "a count of minus one": (batch(b"x", count=-1, last_offset_delta=0), INVALID),
    "a count of two for one record": (batch(b"x", count=2, last_offset_delta=0), INVALID),
    "the highest count": (batch(b"x", count=2**31 - 1), INVALID),
    "a last offset delta of -1": (batch(b"x", last_offset_delta=-1), INVALID),
    "the highest last offset delta": (batch(b"x", last_offset_delta=2**31 - 1), INVALID),
    "a length of zero": (batch(b"x", length=0), CORRUPT),
    "a negative length": (batch(b"x", length=-1), CORRUPT),
    "the lowest length": (batch(b"x", length=-(2**31)), CORRUPT),
    "a length beyond the request": (batch(b"x", length=10_000), INVALID),
    "the highest length": (batch(b"x", length=2**31 - 1), INVALID),
    "a length one too small": (batch(b"x", length=len(batch(b"x")) - 13), INVALID),
    "a producer without a sequence": (
        batch(b"x", producer_id=1, producer_epoch=0, base_sequence=-1),
        INVALID,
    ),
    "a producer with a negative epoch": (
        batch(b"x", producer_id=1, producer_epoch=-1, base_sequence=0),
        INVALID,
    ),
    "a record of 1 MiB and one byte": (batch(bytes((1 << 20) + 1)), "MESSAGE_TOO_LARGE"),
    "a batch of 20 MiB": (batch(bytes(20 << 20)), "MESSAGE_TOO_LARGE"),
}
_TOPICS = {
    "an unknown topic": "nobody-made-it",
    "a topic outside": "../x",
    "a topic of one dot": ".",
    "a topic of two dots": "..",
    "a topic with a slash": "a/b",
    "an empty topic": "",
    "a topic of 250 letters": "x" * 250,
    "a topic of 30,000 letters": "x" * 30_000,
    "a topic with a NUL": "a\x00b",
    "a topic in another alphabet": "тема",
}

CASES = [
    *(refused(name, records, code) for name, (records, code) in _BATCHES.items()),
    *(
        told(f"produce to {name}", VERSION, produce(topic=topic), UNKNOWN_TOPIC)
        for name, topic in _TOPICS.items()
    ),
    *(
        told(
            f"produce to partition {partition}",
            VERSION,
            produce(partition=partition),
            UNKNOWN_TOPIC,
        )
        for partition in (-1, 2, 99, 2**31 - 1, -(2**31))
    ),
    *(
        told(f"acks={acks}", VERSION, produce(acks=acks), "INVALID_REQUIRED_ACKS")
        for acks in (2, -2, 127, -32768)
    ),
    *(
        told(
            f"an unknown topic id, {name}",
            TOPIC_ID_VERSION,
            produce(topic_id=UUID(int=number)),
            "UNKNOWN_TOPIC_ID",
        )
        for name, number in (("zero", 0), ("one", 1), ("the highest", 2**128 - 1))
    ),
    *(
        one_of(
            f"a timeout of {ms} ms", VERSION, produce(timeout_ms=ms), "NONE", "REQUEST_TIMED_OUT"
        )
        for ms in (-1, -(2**31))
    ),
    told("no topics at all", VERSION, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[])),
    told("no partitions at all", VERSION, produce(times=0)),
    one_of("the same partition a hundred times", VERSION, produce(times=100), "NONE", INVALID),
    told(
        "zstd in a version that has none",
        6,
        produce(batch(b"x", attributes=4)),
        "UNSUPPORTED_COMPRESSION_TYPE",
    ),
    told(
        "a batch without a key for a compacted topic", VERSION, produce(topic="compacted"), INVALID
    ),
    told(
        "nonsense under gzip for a compacted topic",
        VERSION,
        produce(batch(body=b"not gzip", count=1, attributes=1), topic="compacted"),
        INVALID,
    ),
    sequence("a gap in the sequence", (0, 1), (10, 1), codes=(EARLY,)),
    sequence("a first sequence that is not zero", (10, 1), codes=(EARLY,)),
    sequence("a sequence that overlaps", (0, 5), (2, 5), codes=(OUT_OF_ORDER,)),
    sequence("a sequence that goes back", (0, 5), (5, 5), (3, 2), codes=(OUT_OF_ORDER,)),
    sequence("a part of a known sequence range", (0, 5), (0, 4), codes=(OUT_OF_ORDER,)),
    sequence(
        "an older producer epoch",
        *((0, 1), (0, 1)),
        epochs=(5, 4),
        codes=("INVALID_PRODUCER_EPOCH",),
    ),
    sequence(
        "a newer epoch that does not begin at zero",
        *((0, 1), (7, 1)),
        epochs=(0, 1),
        codes=(EARLY,),
    ),
    sequence("a sequence that is sent twice", (0, 3), (0, 3), codes=()),
]
