"""What was measured, and convgrad held against the others."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from layers import LAYERS, Layer
from tasks import Task

OURS, TENSORFLOW = "convgrad", "tensorflow"


@dataclass(slots=True)
class Record:
    """One task of one implementation with one number of threads: seconds, one entry per round."""

    name: str
    threads: int
    task: Task
    bests: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    strategy: str = ""
    error: float = math.nan
    error_of_largest: float = math.nan
    refused: str = ""

    def add(self, reply: dict[str, Any]) -> None:
        """Take a worker's reply in."""
        if "refused" in reply:
            self.refused = reply["refused"]
            return
        self.bests.append(reply["best"])
        self.medians.append(reply["median"])
        self.strategy = reply["strategy"]
        self.error = reply.get("error", self.error)
        self.error_of_largest = reply.get("error_of_largest", self.error_of_largest)

    @property
    def best(self) -> float:
        """The least time of all rounds."""
        return min(self.bests)

    @property
    def median(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self.medians)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        # JSON has no NaN, which differs from itself.
        content = {name: None if value != value else value for name, value in asdict(self).items()}
        del content["task"]
        return asdict(self.task) | content


@dataclass(frozen=True, slots=True)
class Comparison:
    """convgrad on one layer against the fastest of the others. Above 1 convgrad is faster."""

    ours: Record
    peer: Record | None
    ratio: float
    ratio_of_medians: float
    ratio_to_tensorflow: float
    fast: Record | None
    ratio_fast: float

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self.ours.task.geometry

    def to_dict(self) -> dict[str, Any]:
        """Return the ratios as JSON can hold them."""
        task = asdict(self.ours.task)
        named = {"operation": self.layer.operation, "threads": self.ours.threads}
        peer = {"peer": self.peer.name, "peer_layout": self.peer.task.layout} if self.peer else {}
        ratios = ("ratio", "ratio_of_medians", "ratio_to_tensorflow", "ratio_fast")
        # JSON has no NaN.
        found = {name: getattr(self, name) for name in ratios if not math.isnan(getattr(self, name))}
        return task | named | {"strategy": self.ours.strategy} | peer | found


def comparisons(
    records: list[Record], operation: str, layout: str, dtype: str, threads: int
) -> list[Comparison]:
    """Return one comparison per layer, in the layers' order."""
    measured = [record for record in records if record.bests and record.threads == threads]
    return [
        _comparison([record for record in measured if record.task.layer == name], layout, dtype)
        for name, layer in LAYERS.items()
        if layer.operation == operation and _ours(measured, name, layout, dtype)
    ]


def _ours(records: list[Record], layer: str, layout: str, dtype: str, fast: bool = False) -> Record | None:
    task = Task(layer, layout, dtype, fast)
    return next((record for record in records if record.name == OURS and record.task == task), None)


def _comparison(records: list[Record], layout: str, dtype: str) -> Comparison:
    layer = records[0].task.layer
    ours, fast = (_ours(records, layer, layout, dtype, wanted) for wanted in (False, True))
    assert ours is not None
    # In NHWC each peer runs in whichever layout it is fastest, in NCHW it is held to that layout: a user of
    # NHWC would rather convert once than lose on every call.
    peers = [
        record
        for record in records
        if record.name != OURS and record.task.dtype == dtype and layout in ("NHWC", record.task.layout)
    ]
    peer = min(peers, key=lambda record: record.best, default=None)
    tensorflow = next((record for record in peers if record.name == TENSORFLOW), None)

    def ratio(theirs: Record | None, mine: Record | None = ours) -> float:
        return theirs.best / mine.best if theirs and mine else math.nan

    medians = min((record.median for record in peers), default=math.nan) / ours.median
    return Comparison(ours, peer, ratio(peer), medians, ratio(tensorflow), fast, ratio(peer, fast))


def scaling(records: list[Record], least: float = 0.01) -> list[tuple[Record, Record]]:
    """Return convgrad's records on one thread of `least` seconds or more, each with the one on two."""
    ours = [record for record in records if record.name == OURS and record.bests]
    two = {record.task: record for record in ours if record.threads == 2}
    return [
        (one, two[one.task]) for one in ours if one.threads == 1 and one.best >= least and one.task in two
    ]
