"""Shared stores: the node that applies writes in the shard of their key, and the processor that runs alone over all lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from penstock.errors import ATTRIBUTED, FAILURES, TopologyError
from penstock.operators.processors import Begun, Context, SetUp, Supplier, made_by
from penstock.processor import Cancellable, Host, Operator, PunctuationType
from penstock.records import Headers, Process, Record
from penstock.state import SharedKeyValueStore, StoreSpec, Write


@dataclass(frozen=True, slots=True)
class ApplyWrites(Operator):
    """Applies writes to a shared store, in order of arrival, in the shard of their key."""

    retries_what_it_reads: ClassVar[bool] = True

    spec: StoreSpec

    def bind(self, host: Host, forward: Process) -> Process:
        spec, failed = self.spec, host.failed
        store = host.store(spec.name)
        get, put = store.get, store.put
        attempt = host.retried(lambda key, write: write.done(spec, get(key)))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                put(key, attempt(key, value))
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class AtomicProcessing(Operator):
    """Runs a user's processor over all lanes: its effects for a record are atomic, all or none."""

    runs_user_objects: ClassVar[bool] = True
    runs_serially: ClassVar[bool] = True

    supplier: Supplier
    declared_at: str
    setup: SetUp = None

    def bind(self, host: Host, forward: Process) -> Process:
        section = Section()

        def make(*client: Any) -> Begun[AtomicContext]:
            return Begun(made_by(self.supplier, client, host), AtomicContext(section, self.declared_at))

        found = host.resident(make, self.setup)
        found.bind(host, forward)
        run, failed = found.made.process, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                run(Record(key, value, timestamp, headers))
            except ATTRIBUTED:
                raise
            except FAILURES as error:
                section.take_back()
                failed(error, key)
            else:
                section.complete()

        return process


class Section:
    """The effects of one record so far: old values to restore if it fails, records to forward if it succeeds."""

    __slots__ = ("_old", "_sent")

    def __init__(self) -> None:
        self._old: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._sent: list[tuple[Process, Record[Any, Any]]] = []

    def put(self, store: Any, key: Any, value: Any) -> None:
        """Set a key's value, and remember the old one in case the section fails."""
        self._old.append((store.put, key, store.get(key)))
        store.put(key, value)

    def send(self, process: Process, record: Record[Any, Any]) -> None:
        """Forward a record when the section completes."""
        self._sent.append((process, record))

    def take_back(self) -> None:
        """Restore everything to its state before the record."""
        for put, key, old in reversed(self._old):
            put(key, old)
        self._old.clear()
        self._sent.clear()

    def complete(self) -> None:
        """Keep the writes and forward the records."""
        self._old.clear()
        sent, self._sent = self._sent, []
        for process, record in sent:
            process(record.key, record.value, record.timestamp, record.headers)


class AtomicContext(Context):
    """The context of a processor in an atomic section: it sends records when the section completes, and has no clocks."""

    __slots__ = ("_declared_at", "_section", "_stores")

    def __init__(self, section: Section, declared_at: str) -> None:
        super().__init__()
        self._section = section
        self._declared_at = declared_at
        self._stores: dict[str, AtomicStore] = {}

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Forward a record when the section completes."""
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        self._section.send(self._forward if child is None else self._host.child(child), record)

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record to a side output when the section completes."""
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        self._section.send(self._host.side_output(name), record)

    def store(self, name: str) -> Any:
        """Return a shared store that reads and writes any key immediately."""
        found = self._stores.get(name)
        if found is None:
            host = self._host
            if host.spec(name).sharing is None:
                return host.user_store(name)  # a global one, which all lanes can read
            found = self._stores[name] = AtomicStore(host.spec(name), host.node, host.user_store(name), self._section)
        return found

    def schedule(self, interval: Any, kind: PunctuationType, callback: Callable[[int], None], start: Any = None) -> Cancellable:
        """Raise: an atomic section has no punctuators."""
        self._refuse_clock("schedules a punctuator")

    @property
    def timers(self) -> NoReturn:
        """Raise: an atomic section has no timers."""
        self._refuse_clock("uses timers")

    def _refuse_clock(self, what: str) -> NoReturn:
        raise TopologyError(
            f"{self._host.node} {what} in an atomic section ({self._declared_at}), which runs only for records. "
            f"Use timers in a process(...) before the section, and forward a record into it when they fire."
        )


class AtomicStore(SharedKeyValueStore[Any, Any]):
    """A shared store in an atomic section: the current value of every key, in whichever lane."""

    def __init__(self, spec: StoreSpec, user: str, store: Any, section: Section) -> None:
        super().__init__(spec, user)
        self._store = store
        self._section = section

    def get(self, key: Any) -> Any:
        """See `SharedKeyValueStore`."""
        return self._store.get(key)

    def _do(self, key: Any, write: Write) -> None:
        self._section.put(self._store, key, write.done(self._spec, self._store.get(key)))
