"""The restore of lanes: at a start, and on a cluster whenever lanes have to move."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

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
from penstock.observation import Recorder
from penstock.runtime.hosting.restore_progress import RestoreProgress
from penstock.runtime.instance import Instance

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
