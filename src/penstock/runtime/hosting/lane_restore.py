"""The restore of lanes: at a start, and on a cluster whenever lanes have to move; and its progress, as people see it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from penstock import machine
from penstock.engines.port import Engine, OnProgress, SlotLostError
from penstock.epochs.program import Program, has_lanes
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.epochs.standing import Committed
from penstock.errors import LaneMovedError, StateError
from penstock.history.committed import places
from penstock.history.progress import Progress
from penstock.history.truth import Truth
from penstock.kafka.changelog import read
from penstock.kafka.clients import for_tasks
from penstock.kafka.topics import Topics
from penstock.observation import Recorder, RestoreReport
from penstock.runtime.instance import Instance

_WIDTH = 30


class RestoreProgress:
    """Percent and rate of a restore over all lanes."""

    def __init__(self, stream: TextIO | None = None, log_every_s: float = 5.0) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._log_every_s = log_every_s
        self._began = self._shown = machine.monotonic()
        self._is_on_line = False

    def __call__(self, restore: RestoreReport) -> None:
        """Show the progress, unless that was done a moment ago."""
        now = machine.monotonic()
        total = sum(restore.total.values())
        if not total or now - self._shown < (0.2 if self._stream.isatty() else self._log_every_s):
            return
        self._shown = now
        done = total - sum(restore.left.values())
        rate = done / max(now - self._began, 0.001)
        if self._stream.isatty():
            filled = int(_WIDTH * restore.fraction)
            bar = "#" * filled + "." * (_WIDTH - filled)
            self._stream.write(f"\rrestoring [{bar}] {int(100 * restore.fraction):3d} %  {rate:,.0f} records/s ")
            self._stream.flush()
            self._is_on_line = True
        else:
            _log.info("restoring: %d %%, %d of %d records, %.0f records/s", 100 * restore.fraction, done, total, rate)

    def close(self) -> None:
        """End the line of the progress bar."""
        if self._is_on_line:
            self._stream.write("\n")


_log = logging.getLogger(__name__)

_TRIES = 3
"""How often lanes are restored if slots are lost meanwhile."""


class LaneRestore:
    """Restores the lanes of a program; `read` reads changelogs in its tasks.

    `abandon` aborts the transaction of an epoch that lanes were lost in, if executors have begun one.
    """

    def __init__(
        self,
        program: Program,
        engine: Engine,
        topics: Topics,
        truth: Truth,
        read: ReadChangelog,
        abandon: Callable[[], None],
        recorder: Recorder,
    ) -> None:
        self._program = program
        self._engine = engine
        self._topics = topics
        self._truth = truth
        self._read = read
        self._abandon = abandon
        self._recorder = recorder

    @classmethod
    def of(cls, instance: Instance, engine: Engine, topics: Topics, truth: Truth, abandon: Callable[[], None]) -> LaneRestore:
        """Return the restore of an instance's lanes."""
        reading = for_tasks(instance.config, instance.application_id, read)
        return cls(instance.program, engine, topics, truth, reading, abandon, instance.recorder)

    def run(self, committed: Committed) -> Mapping[int, str]:
        """Restore all lanes at a start; return the ids of the writes that they have."""
        program = self._program
        if not has_lanes(program):
            self._recorder.restored()
            return {}
        progress, left_of = RestoreProgress(), dict[int, int]()

        def on_progress(lane: int, where: str, left: int | None) -> None:
            self._recorder.restores.advanced(lane, where)
            if left is not None:
                left_of[lane] = left
                progress(self._recorder.restoring(dict(left_of), program.lanes))

        began = machine.monotonic()
        with self._recorder.restores.of(program.lanes):
            restored = self._placed(committed, on_progress)
        progress.close()
        self._recorder.restored()
        rows = sum(lane.rows for lane in restored)
        kinds = ", ".join(sorted({lane.found for lane in restored}))
        _log.info("restored %d lanes (%s): %d records in %.1f s", program.lanes, kinds, rows, machine.monotonic() - began)
        return {lane.lane: lane.write_id for lane in restored}

    def _placed(self, committed: Committed, on_progress: OnProgress) -> Sequence[Restored]:
        """Place the lanes; once more without the stores of those whose slots have died, because a store may have done that."""
        distrusted: set[int] = set()
        for left in reversed(range(_TRIES)):
            try:
                return self._engine.place(committed, self._read, on_progress, distrusted)
            except (SlotLostError, LaneMovedError) as error:
                if not left:
                    raise StateError(
                        f"Lanes were not restored in {_TRIES} attempts. Start again. The last error: {error}"
                    ) from error
                _log.warning("restoring lanes once more: %s", error)
                distrusted |= error.lanes if isinstance(error, SlotLostError) else set()
        raise AssertionError

    @property
    def anew(self) -> Callable[[Progress, int], None] | None:
        """Restores all lanes where they run next, to what this start has committed last; None if lanes stay where they are."""
        return self._restore_anew if self._program.is_spread else None

    def _restore_anew(self, progress: Progress, attempt: int) -> None:
        self._abandon()
        changelogs = self._truth.changelogs
        committed = Committed(
            progress.epoch,
            self._program.incarnation,
            places(self._topics.begin_offsets(changelogs)),
            places(self._topics.settled_ends(changelogs)),
            machine.now_ms(),
            self._topics.identities(topic for topic, _ in changelogs),
            progress.heads,
            attempt,
        )
        self.run(committed)
