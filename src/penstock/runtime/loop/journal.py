"""Reports on epochs: phases, epochs and partitions go to the recorder, and drops to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from penstock.epochs.program import Epoch
from penstock.epochs.wire import Kind
from penstock.history.progress import Progress
from penstock.kafka.commit import Phase
from penstock.observation import CHOSEN, DEAD_LETTERS, PartitionReport, Recorder
from penstock.records import NO_TIMESTAMP, Partition
from penstock.runtime.loop.feedback import Feedback
from penstock.runtime.loop.publication import Published

_log = logging.getLogger("penstock.runtime.loop.epochs")  # users know this name: they set its level, and filter by it

BEFORE, JOB, WAIT, CHECK = "before", "job", "wait", "check"
"""The phases of an epoch before those of the commit: global tables are updated, the job runs, the epoch waits for the commit of
the one before it, its rows are checked."""

AT_THE_BARRIER = {Phase.BEGUN: "produce", Phase.PRODUCED: "offsets", Phase.COMMITTING: "commit", Phase.COMMITTED: "after"}
"""The phase of the epoch that begins when the committer has reached one of its own."""


def phase_reporter(recorder: Recorder) -> Callable[[Phase, float], None]:
    """Return a function by which a committer reports its phases to the recorder."""

    def on_phase(phase: Phase, _: float) -> None:
        if phase in AT_THE_BARRIER:
            recorder.phase_begins(AT_THE_BARRIER[phase])

    return on_phase


class Journal:
    """Reports epochs as they happen; `topics` are those that rows refer to by index."""

    def __init__(self, topics: Sequence[str], recorder: Recorder) -> None:
        self._topics = topics
        self._recorder = recorder

    def epoch_begins(self, number: int) -> None:
        """Report that an epoch begins."""
        self._recorder.epoch_begins(number, BEFORE)

    def epoch_begins_again(self, number: int) -> None:
        """Report that the job of the same epoch is retried."""
        self._recorder.epoch_begins(number, JOB)

    def job_begins(self, number: int) -> None:
        """Report that the job of an epoch begins."""
        self._recorder.phase_begins(JOB, number)

    def job_ended(self, number: int) -> None:
        """Report that an epoch waits until the one before it is committed."""
        self._recorder.phase_begins(WAIT, number)

    def check_begins(self) -> None:
        """Report that the check of the current epoch's rows begins."""
        self._recorder.phase_begins(CHECK)

    def log_dropped(self, feedback: Feedback) -> None:
        """Log the records that tasks have dropped."""
        for node, reason, count in feedback.dropped:
            _log.info("%s dropped %d records: %s", node, count, reason)

    def epoch_committed(self, epoch: Epoch, records: int, published: Published, feedback: Feedback) -> None:
        """Report a committed epoch of so many records."""
        dropped = feedback.dropped
        if left_out := published.left_out + feedback.left_out:
            dropped = [*dropped, ("(sinks)", "production error", left_out)]
        sent = sent_by_topic(self._topics, published.batches)
        for name, _, count in feedback.written:
            sent[self._topics[name]] = sent.get(self._topics[name], 0) + count
        self._recorder.epoch_committed(records, sent, dropped, feedback.reports, epoch.is_sampled, feedback.metrics)

    def moved(self, progress: Progress, idle: Collection[Partition]) -> None:
        """Report the positions of the source partitions; the watermark does not wait for those that are `idle`."""
        reports = {
            place: PartitionReport(
                *place,
                progress.offsets[place],
                -1,
                progress.high_times.get(place, NO_TIMESTAMP),
                progress.watermarks.get(place, NO_TIMESTAMP),
                place in idle,
            )
            for place in progress.origins
        }
        self._recorder.moved(reports, progress.watermark)


def sent_by_topic(topics: Sequence[str], batches: Sequence[pa.RecordBatch]) -> dict[str, int]:
    """Count the rows for each topic; rows whose topic was chosen per record, and dead letters, are each counted as one topic."""
    sent: dict[str, int] = {}
    for batch in batches:
        codes = batch.column("name").to_numpy(zero_copy_only=False)
        is_dead = batch.column("kind").to_numpy(zero_copy_only=False) == Kind.DEAD_LETTER
        counts = np.bincount(codes[~is_dead] + 1, minlength=1)  # faster than sorting; the first count is of rows without a code
        for code in np.flatnonzero(counts).tolist():
            topic = topics[code - 1] if code else CHOSEN
            sent[topic] = sent.get(topic, 0) + int(counts[code])
        if is_dead.any():
            sent[DEAD_LETTERS] = sent.get(DEAD_LETTERS, 0) + int(is_dead.sum())
    return sent
