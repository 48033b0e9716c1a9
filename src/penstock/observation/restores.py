"""`Restores`: whether lanes are being restored, where each of them is, and how long none has advanced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Restores:
    """The restore that is under way, if one is: at a start, or in an epoch whose lanes have moved. Readable from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changing = threading.Lock()  # each lane reports in a thread of its own
        self._advanced_at: float | None = None
        self._places: Mapping[int, str] = {}

    @contextmanager
    def of(self, lanes: int) -> Iterator[None]:
        """Restore so many lanes in the block."""
        self._places, self._advanced_at = dict.fromkeys(range(lanes), "waiting for a slot"), self._clock()
        try:
            yield
        finally:
            self._places, self._advanced_at = {}, None

    def advanced(self, lane: int, where: str) -> None:
        """Note that a lane has advanced, and where it is now; nowhere if it is done."""
        with self._changing:
            self._advanced_at = self._clock()
            self._places = {**self._places, lane: where}

    @property
    def left(self) -> Mapping[int, str]:
        """Where each lane is that is not restored yet."""
        return {lane: where for lane, where in sorted(self._places.items()) if where}

    def still_for(self) -> float | None:
        """Return the seconds in which no lane has advanced; None if no restore is under way."""
        advanced_at = self._advanced_at
        return None if advanced_at is None else self._clock() - advanced_at
