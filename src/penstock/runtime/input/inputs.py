"""The input of an application: how far its source topics are read, and the thread that runs epochs of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock import machine
from penstock.errors import PenstockError
from penstock.history.progress import Progress
from penstock.records import Partition

_FILL_EVERY_S = 0.02
_LOOK_S = 0.25
"""How long the loop waits for records before it looks whether it should stop."""

Offsets = Mapping[Partition, int]


class Input(Protocol):
    """How far the source topics are read."""

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        """Wait until there are records after `offsets`, at most for `timeout_s`; return the offsets up to which there are."""

    def release(self, offsets: Offsets) -> None:
        """Forget what is before these offsets; later ones are read next."""

    def fill(self) -> None:
        """Prepare what was received in the meantime."""

    def idle(self, timeout_s: float) -> None:
        """Stay connected for this long, without reading further: the application is paused."""

    def close(self) -> None:
        """Stop reading."""


class InputBehind:
    """What decides how far a reader is to be read, and leaves all else to it."""

    _reader: Input

    def release(self, offsets: Offsets) -> None:
        """Forget what is before these offsets."""
        self._reader.release(offsets)

    def fill(self) -> None:
        """Prepare what was received in the meantime."""
        self._reader.fill()

    def idle(self, timeout_s: float) -> None:
        """Stay connected."""
        self._reader.idle(timeout_s)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def count(offsets: Offsets, ends: Offsets) -> int:
    """Return the number of offsets up to `ends`."""
    return sum(ends[place] - offset for place, offset in offsets.items())


class Position(Protocol):
    """How far epochs have got: `taken` records, and `progress` that is committed; no epoch begins while it `is_paused`."""

    taken: Progress
    progress: Progress
    is_paused: bool


class InputLoop:
    """Calls `on_input` in a thread of its own whenever there are records, at most once per `interval_s`."""

    def __init__(
        self, source: Input, position: Position, on_input: Callable[[Offsets], None], interval_s: float, name: str
    ) -> None:
        self._source = source
        self._position = position
        self._on_input = on_input
        self._interval_s = interval_s
        self._failure: BaseException | None = None
        self._fill_failure: PenstockError | None = None
        self._stopping = machine.event()
        self._running = machine.event()
        self._thread = machine.thread(self._run, name)
        self._filling = machine.thread(self._fill, f"{name}-fill")

    def start(self) -> None:
        """Start reading."""
        self._thread.start()
        self._filling.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; return whether it has come. Raises the error that ended the loop."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Stop reading; a running epoch is completed first."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._running.set()  # only now: an epoch that ends clears it, and the other thread would wait for the next one
        if self._filling.is_alive():
            self._filling.join()
        self._source.close()

    def _run(self) -> None:
        is_first = True
        try:
            while not self._stopping.is_set():
                if self._fill_failure is not None:
                    raise self._fill_failure
                if self._position.is_paused:
                    self._source.idle(_LOOK_S)
                    continue
                before = self._position.taken
                offsets = before.offsets
                self._source.release(self._position.progress.offsets)
                ends = self._source.wait(offsets, _LOOK_S)
                if ends == offsets and not is_first:
                    continue
                began = machine.monotonic()
                self._running.set()
                self._on_input(ends)
                self._running.clear()
                # The first epoch commits where the application begins, even without records. A pause may have prevented it.
                is_first = is_first and self._position.taken.epoch == before.epoch
                self._stopping.wait(self._interval_s - (machine.monotonic() - began))
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._failure = error

    def _fill(self) -> None:
        """Prepare the next epoch's records while one is running, in place of those that are committed by then."""
        while not self._stopping.wait(_FILL_EVERY_S):
            self._running.wait()
            try:
                self._source.release(self._position.progress.offsets)
                self._source.fill()
            except PenstockError as error:  # raised by the loop: a consumer tells an error once
                self._fill_failure = error
                return
