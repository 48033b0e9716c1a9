"""The processors of the specification; oracle/Processors.java is the same in Java."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import FixedKeyProcessor, Processor, PunctuationType, Record, ValueTransformer, Windowed
from penstock.records import ValueAndTimestamp
from penstock.serdes import String
from verification.conformance.functions import clip, crc, head, show

Text = str


class _Stateful(Processor[Any, Any, Any, Any]):
    """A processor with one store."""

    def __init__(self, store: Text) -> None:
        self._name = store
        self.store: Any = None

    def init(self, context: Any) -> None:
        """Look the store up."""
        super().init(context)
        self.store = context.store(self._name)

    def forward(self, record: Record[Any, Any], value: Text) -> None:
        """Forward the record with another value."""
        self.context.forward(record.with_value(clip(value)))


class Counting(_Stateful):
    """Numbers the records of each key."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key = show(record.key)
        self.store.put(key, (self.store.get(key) or 0) + 1)
        self.forward(record, f"{show(record.value)}#{self.store.get(key)}")


class Timer(_Stateful):
    """Keeps the last value of each key; the timer forwards all of them.

    It stops after some rounds; otherwise it might run forever.
    """

    def __init__(self, store: Text, interval: int, kind: PunctuationType) -> None:
        super().__init__(store)
        self._interval = interval
        self._kind = kind
        self._rounds = 0
        self._schedule: Any = None

    def init(self, context: Any) -> None:
        """Start the timer."""
        super().init(context)
        self._schedule = context.schedule(self._interval, self._kind, self._punctuate)

    def _punctuate(self, timestamp: int) -> None:
        for key, value in list(self.store.all()):
            self.context.forward(Record(key, f"{value}@{timestamp}", max(0, timestamp)))
        self._rounds += 1
        if self._rounds == (3 if self._kind is PunctuationType.WALL_CLOCK_TIME else 20):
            self._schedule.cancel()

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.store.put(show(record.key), clip(show(record.value)))


class AddHeader(Processor[Any, Any, Any, Any]):
    """Adds a header."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.context.forward(record.with_headers((*record.headers, ("added", show(record.value).encode()))))


class Retime(Processor[Any, Any, Any, Any]):
    """Forwards each record twice, later and earlier."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.context.forward(record.with_timestamp(record.timestamp + 5))
        self.context.forward(record.with_timestamp(max(0, record.timestamp - 5)))


class Metadata(Processor[Any, Any, Any, Any]):
    """Forwards a record's origin and the current times."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        context = self.context
        source = context.record_metadata
        where = "-" if source is None else f"{source.topic}/{source.partition}/{source.offset}"
        times = f"{context.current_stream_time_ms()}|{context.current_system_time_ms()}"
        context.forward(record.with_value(f"{where}|{times}"))


class Windowing(_Stateful):
    """Keeps values in a window store and forwards adjacent windows."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key, at = show(record.key), record.timestamp
        self.store.put(key, None if record.value is None else clip(show(record.value)), at)
        seen = "".join(f"{start}{value}," for start, value in self.store.fetch_range(key, max(0, at - 10), at + 10))
        seen += "".join(f"{start}{value};" for start, value in self.store.fetch_range(key, max(0, at - 5), at, reverse=True))
        self.forward(record, seen)


class Sessions(_Stateful):
    """Merges sessions by hand."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key = show(record.key)
        start = end = record.timestamp
        merged = ""
        old = list(self.store.find_sessions(key, max(0, start - 5), end + 5))
        for window, value in old:
            merged += f"{value}|"
            start, end = min(start, window.start), max(end, window.end)
        for window, _ in old:
            self.store.remove(window)
        merged += show(record.value)
        self.store.put(Windowed(key, start, end), clip(merged))
        self.forward(record, f"{start}-{end}{merged}")


class Versions(_Stateful):
    """Keeps versions and forwards the newest and an older one."""

    @staticmethod
    def _show(found: Any) -> Text:
        return "~" if found is None else f"{found.value}@{found.timestamp}"

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key = show(record.key)
        valid_to = self.store.put(key, None if record.value is None else clip(show(record.value)), record.timestamp)
        newest, older = self.store.get(key), self.store.get(key, max(0, record.timestamp - 3))
        self.forward(record, f"{self._show(newest)}|{self._show(older)}|{valid_to}")


class Timestamped(_Stateful):
    """Forwards the previous value, with its time."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key = show(record.key)
        old: ValueAndTimestamp[Any] | None = self.store.entry(key)
        if record.value is None:
            self.store.delete(key)
        else:
            self.store.put(key, clip(show(record.value)), record.timestamp)
        self.forward(record, "~" if old is None else f"{old.value}@{old.timestamp}")


class Ranges(_Stateful):
    """Reads a key-value store in every direction."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        key, store = show(record.key), self.store
        if record.value is None:
            store.delete(key)
        else:
            store.put_if_absent(key + "0", head(record.value))
            store.put(key, head(record.value))
        scans = (
            store.range("a", "b"),
            store.reverse_range("a", None),
            store.prefix_scan("b", String().serialize),
            store.reverse_all(),
        )
        seen = (f"{''.join(k + v for k, v in scan)}{number}" for number, scan in enumerate(scans, start=1))
        self.forward(record, "".join(seen))


class Lookup(_Stateful):
    """Reads a global or read-only store."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.forward(record, f"{show(record.value)}&{show(self.store.get(show(record.key)))}")


class Router(Processor[Any, Any, Any, Any]):
    """Sends each record to one child."""

    def __init__(self, children: list[Text]) -> None:
        self._children = children

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.context.forward(record, self._children[crc(show(record.value)) % len(self._children)])


class GlobalPut(_Stateful):
    """Fills a global or read-only store."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        if record.key is None:
            return
        if record.value is None:
            self.store.delete(show(record.key))
        else:
            self.store.put(show(record.key), clip(show(record.value)))


class FixedTag(FixedKeyProcessor[Any, Any, Any]):
    """Marks the value; with `retime` also changes the timestamp and adds a header."""

    def __init__(self, *, retime: bool) -> None:
        self._retime = retime

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        changed = record.with_value(clip(show(record.value) + "!"))
        if self._retime:
            changed = changed.with_timestamp(record.timestamp + 2).with_headers((*record.headers, ("fixed", b"1")))
        self.context.forward(changed)


class FixedScatter(FixedKeyProcessor[Any, Any, Any]):
    """Forwards each record three times, later, unchanged and later again: one record updates windows out of order."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        for mark, later in (("1", 10), ("2", 0), ("3", 10)):
            changed = record.with_value(clip(show(record.value) + mark))
            self.context.forward(changed.with_timestamp(record.timestamp + later))


class FixedCounting(FixedKeyProcessor[Any, Any, Any]):
    """Numbers the records of each key."""

    def __init__(self, store: Text) -> None:
        self._name = store

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        store, key = self.context.store(self._name), show(record.key)
        store.put(key, (store.get(key) or 0) + 1)
        self.context.forward(record.with_value(clip(f"{show(record.value)}#{store.get(key)}")))


class Transformer(ValueTransformer[Any, Any, Any]):
    """Marks the value with the key, or with the number of calls."""

    def __init__(self, store: Text | None) -> None:
        self._name = store

    def transform(self, key: Any, value: Any) -> Text | None:
        """See the class."""
        if self._name is None:
            return None if value is None else clip(f"{show(key)}^{show(value)}")
        store = self.context.store(self._name)
        store.put(show(key), (store.get(show(key)) or 0) + 1)
        return None if value is None else clip(f"{show(value)}#{store.get(show(key))}")


def supplier(name: Text, args: dict[Text, Any]) -> Callable[[], Any]:
    """The supplier of the processor of that name."""
    store, interval = args.get("uses", ""), args.get("interval", 0)
    makers: dict[Text, Callable[[], Any]] = {
        "counting": lambda: Counting(store),
        "stream_timer": lambda: Timer(store, interval, PunctuationType.STREAM_TIME),
        "wall_timer": lambda: Timer(store, interval, PunctuationType.WALL_CLOCK_TIME),
        "add_header": AddHeader,
        "retime": Retime,
        "metadata": Metadata,
        "windowing": lambda: Windowing(store),
        "sessions": lambda: Sessions(store),
        "versions": lambda: Versions(store),
        "timestamped": lambda: Timestamped(store),
        "ranges": lambda: Ranges(store),
        "lookup": lambda: Lookup(store),
        "router": lambda: Router(args["children"]),
        "global_put": lambda: GlobalPut(store),
        "fixed_tag": lambda: FixedTag(retime=False),
        "fixed_retime": lambda: FixedTag(retime=True),
        "fixed_scatter": FixedScatter,
        "fixed_counting": lambda: FixedCounting(store),
        "value_tag": lambda: Transformer(None),
        "value_counting": lambda: Transformer(store),
    }
    return makers[name]
