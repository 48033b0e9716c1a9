"""Processors whose results show how long they have lived: by an attribute, by what they schedule late, by what they cancel.

In the host they are replaced when their life ends. The judge has the same objects all the time, and tells them: so what it
expects follows from the rules of `lives`, and not from what Penstock keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from penstock import Cancellable, FixedKeyProcessor, Processor, PunctuationType, Record, ValueTransformer
from verification.conformance.functions import clip, is_x, show

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Living:
    """What begins with `init`, or when it is told to begin anew, and ends with `close`."""

    open: ClassVar[list[object]] = []
    """All that have begun and are not closed: none, once everything has ended."""

    def init(self, context: Any) -> None:
        """Begin."""
        self.context: Any = context
        Living.open.append(self)
        self.begin_anew(is_start=True)

    def begin_anew(self, *, is_start: bool) -> None:
        """Forget what is in memory; with a start, also what was cancelled."""

    def close(self) -> None:
        """End."""
        Living.open.remove(self)


class Numbering(Living, Processor[Any, Any, Any, Any]):
    """Numbers the records of its shard, in an attribute."""

    transient = ("_count",)

    def begin_anew(self, *, is_start: bool) -> None:
        """See `Living`."""
        self._count = 0

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self._count += 1
        self.context.forward(record.with_value(clip(f"{show(record.value)}#{self._count}")))


class FixedNumbering(Living, FixedKeyProcessor[Any, Any, Any]):
    """Numbers the records of its shard, in an attribute."""

    transient = ("_count",)

    def begin_anew(self, *, is_start: bool) -> None:
        """See `Living`."""
        self._count = 0

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self._count += 1
        self.context.forward(record.with_value(clip(f"{show(record.value)}#{self._count}")))


class NumberingTransformer(Living, ValueTransformer[Any, Any, Any]):
    """Numbers the values of its shard, in an attribute."""

    transient = ("_count",)

    def begin_anew(self, *, is_start: bool) -> None:
        """See `Living`."""
        self._count = 0

    def transform(self, key: Any, value: Any) -> str | None:
        """See the class."""
        self._count += 1
        return None if value is None else clip(f"{show(value)}#{self._count}")


class Late(Living, Processor[Any, Any, Any, Any]):
    """Schedules a punctuator when a record comes and there is none; it cancels itself after some rounds, or a record does.

    It forwards how often it was called, counted in an attribute.
    """

    transient = ("_fired", "_scheduled", "_last")

    def __init__(self, kind: PunctuationType, interval: int, rounds: int, *, anchored: bool) -> None:
        self._kind = kind
        self._interval = interval
        self._rounds = rounds
        self._anchored = anchored
        self._scheduled: Cancellable | None = None

    def begin_anew(self, *, is_start: bool) -> None:
        """See `Living`."""
        self._cancel()
        self._last = "~"
        self._fired = 0

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self._last = show(record.key)
        if self._scheduled is not None and is_x(record.value):
            self._cancel()
        elif self._scheduled is None:
            start = record.timestamp // self._interval * self._interval if self._anchored else None
            self._scheduled = self.context.schedule(self._interval, self._kind, self._fire, start=start)
        self.context.forward(record)

    def _fire(self, time: int) -> None:
        self._fired += 1
        self.context.forward(Record(self._last, f"{self._fired} at {time}", max(0, time)))
        if self._fired % self._rounds == 0:
            self._cancel()

    def _cancel(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None


class Once(Living, Processor[Any, Any, Any, Any]):
    """Schedules a punctuator in `init`, which cancels itself after some rounds; or else a record cancels it.

    It has the rounds in its store: they go on with the next processor, until the punctuator is cancelled.
    """

    transient = ("_cancelled",)

    def __init__(self, store: str, kind: PunctuationType, interval: int, rounds: int) -> None:
        self._name = store
        self._kind = kind
        self._interval = interval
        self._rounds = rounds

    def init(self, context: Any) -> None:
        """See `Living`."""
        self._store = context.store(self._name)
        self._cancelled = True
        super().init(context)

    def begin_anew(self, *, is_start: bool) -> None:
        """Schedule it again, if a start finds it cancelled."""
        if is_start and self._cancelled:
            self._cancelled = False
            self._scheduled = self.context.schedule(self._interval, self._kind, self._fire)

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        if is_x(record.value):
            self._cancel()
        self.context.forward(record)

    def _fire(self, time: int) -> None:
        rounds = (self._store.get("rounds") or 0) + 1
        self._store.put("rounds", rounds)
        self.context.forward(Record("fired", f"{rounds} at {time}", max(0, time)))
        if rounds % self._rounds == 0:
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        self._scheduled.cancel()


CLOCKS = {"stream": STREAM, "wall": WALL}
LATE = tuple(f"late_{clock}" for clock in CLOCKS)
ONCE = tuple(f"once_{clock}" for clock in CLOCKS)
NUMBERING = ("numbering", "fixed_numbering", "transformer_numbering")
LIVES = (*LATE, *ONCE, *NUMBERING)
"""The processors of this module, by name."""


def maker(name: str, args: dict[str, Any]) -> Callable[[], Any]:
    """The supplier of the processor of that name."""
    plain = {"numbering": Numbering, "fixed_numbering": FixedNumbering, "transformer_numbering": NumberingTransformer}
    if name in plain:
        return plain[name]
    how, _, clock = name.partition("_")
    kind, interval, rounds = CLOCKS[clock], args["interval"], args["rounds"]
    if how == "late":
        return lambda: Late(kind, interval, rounds, anchored=args.get("anchored", False))
    return lambda: Once(args["uses"], kind, interval, rounds)
