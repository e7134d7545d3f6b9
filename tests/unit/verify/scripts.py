"""Histories that are written by hand."""

from holdfast.verify.checkers import Anomaly, check
from holdfast.verify.history import (
    Append,
    Call,
    ColdLog,
    Deleted,
    DeleteRecords,
    Fetch,
    Fetched,
    LandedKind,
    Listed,
    ListOffsets,
    Produce,
    Produced,
    Recorder,
    Which,
)

P = "orders/0"


class Script(Recorder):
    """A recorder in which every event takes one second; `p` stands for producer."""

    def send(self, *values: int, p: tuple[int, int] | None = None, seq: int = -1) -> Call:
        producer_id, epoch = p or (-1, -1)
        return self.invoke("p", "b1", Produce(P, values, producer_id, epoch, seq), 0.0)

    def acked(
        self, base: int, *values: int, p: tuple[int, int] | None = None, seq: int = -1
    ) -> None:
        self.ok(self.send(*values, p=p, seq=seq), Produced(base), 0.0)

    def fetched(
        self, offset: int, *records: tuple[int, int], hw: int, log_start: int = 0, broker="b1"
    ) -> None:
        call = self.invoke("c", broker, Fetch(P, offset), 0.0)
        self.ok(call, Fetched(records, hw, log_start), 0.0)

    def latest(self, offset: int, broker: str = "b1") -> None:
        call = self.invoke("w", broker, ListOffsets(P, Which.LATEST), 0.0)
        self.ok(call, Listed(offset), 0.0)

    def earliest(self, offset: int) -> None:
        call = self.invoke("w", "b1", ListOffsets(P, Which.EARLIEST), 0.0)
        self.ok(call, Listed(offset), 0.0)

    def delete_records(self, before: int, log_start: int) -> None:
        call = self.invoke("a", "b1", DeleteRecords(P, before), 0.0)
        self.ok(call, Deleted(log_start), 0.0)

    def cold(self, *records: tuple[int, int], log_start: int = 0, end: int | None = None) -> None:
        last = records[-1][0] + 1 if records else log_start
        self.history.cold[P] = ColdLog(records, log_start, last if end is None else end)

    def lands(
        self,
        number: int,
        *appends: Append,
        kind: LandedKind = LandedKind.DATA,
        claim: int = 0,
        writer: str = "w1",
        previous: str | None = None,
        digest: str | None = None,
    ) -> None:
        self.landed(
            lane=1,
            number=number,
            kind=kind,
            claim=claim,
            writer=writer,
            previous=f"h{number - 1}" if previous is None else previous,
            digest=digest or f"h{number}",
            appends=appends,
        )

    def kinds(self) -> set[Anomaly]:
        return {violation.kind for violation in check(self.history)}
