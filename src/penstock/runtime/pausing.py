"""`Pausable`: the part of a running application by which it is paused and resumed.

A pause is requested by a person, and lasts until one ends it. What `Epochs.interrupt` does lasts a moment, while the input is
replaced, and may happen during a pause.
"""

from __future__ import annotations

import logging

from penstock import machine
from penstock.observation import Recorder
from penstock.runtime.loop.epochs import Epochs

_log = logging.getLogger(__name__)
_LOOK_S = 0.05


class Pausable:
    """An application that begins no epoch while it is paused, not even before it has started."""

    def __init__(self, application_id: str, recorder: Recorder) -> None:
        self.application_id = application_id
        self.recorder: Recorder = recorder
        self._ended = machine.event()
        self._pausing = machine.lock()
        self._epochs: Epochs | None = None

    def pause(self) -> None:
        """Begin no further epoch until `resume`, without waiting; those that have begun are committed.

        Everything else goes on: queries and probes are answered, connections stay open, and `stop` works. What becomes due by the
        clock meanwhile comes after the pause. A pause during the start begins when the start is complete; a restart ends it.
        Pausing twice, or resuming what is not paused, does nothing.

        Example:
            >>> running.pause()  # doctest: +SKIP
            >>> running.wait_until_paused(60)  # doctest: +SKIP
            True
            >>> running.resume()  # doctest: +SKIP
        """
        self._set_paused(True)

    def resume(self) -> None:
        """End a pause."""
        self._set_paused(False)

    @property
    def is_paused(self) -> bool:
        """Whether a pause was requested; epochs that had begun may still run."""
        return self.recorder.is_paused

    @property
    def is_at_rest(self) -> bool:
        """Whether it is paused, and all epochs are committed."""
        return self.is_paused and self._epochs is not None and self._epochs.is_idle

    def wait_until_paused(self, timeout_s: float | None = None) -> bool:
        """Wait until it `is_at_rest`; return whether it is: not if the time is over, or it was resumed or has ended."""
        deadline = None if timeout_s is None else machine.monotonic() + timeout_s
        while self.is_paused and not self.is_at_rest and (deadline is None or machine.monotonic() < deadline):
            if self._ended.wait(_LOOK_S):
                return False
        return self.is_at_rest

    def _set_paused(self, is_paused: bool) -> None:
        with self._pausing:
            if is_paused is self.is_paused:
                return
            self.recorder.paused(is_paused)
            if self._epochs is not None:
                self._epochs.is_paused = is_paused
        _log.info("%s was %s", self.application_id, "paused" if is_paused else "resumed")

    def _may_pause(self, epochs: Epochs) -> None:
        """Take over the epochs of a start, during which the application may have been paused."""
        with self._pausing:
            self._epochs = epochs
            epochs.is_paused = self.is_paused
