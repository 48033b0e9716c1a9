"""`CatchingUp`: an input far behind is read by the slots themselves; the driver's reader reads it when few records wait."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.input.inputs import Input, InputBehind, Offsets, count


class CatchingUp(InputBehind):
    """Reads by `reader`, unless more than `most` records wait: then it returns the `ends` of the topics, and reads nothing."""

    def __init__(self, reader: Input, ends: Callable[[], Offsets], most: int) -> None:
        self._reader = reader
        self._ends = ends
        self._most = most
        self._is_far_behind = True

    def wait(self, offsets: Offsets, timeout_s: float) -> Offsets:
        """Wait until there are records after `offsets`; return the offsets up to which there are."""
        if not self._is_far_behind:
            found = self._reader.wait(offsets, timeout_s)
            if count(offsets, found) <= self._most:
                return found
        ends = self._ends()
        reached = {place: max(offset, ends.get(place, offset)) for place, offset in offsets.items()}
        self._is_far_behind = count(offsets, reached) > self._most
        if not self._is_far_behind:
            return self._reader.wait(offsets, timeout_s)
        self._reader.idle(0.0)
        return reached

    def fill(self) -> None:
        """Prepare what was received in the meantime."""
        if not self._is_far_behind:
            self._reader.fill()
