"""The size of the next epoch, learned from earlier ones: bytes in and bytes out per record, and time.

The first epoch of a start is small, because nothing is known yet and the first commit should come soon, even if each record waits
for a slow service. Epochs grow while their records take less than the target time. An epoch also has a fixed cost, seconds on a
busy machine, which a smaller size would not reduce: so only the time that grows with the records counts. An epoch that is too
large is retried with half of its records, or as few as its time allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from penstock.records import Partition
from penstock.runtime.loop.share import Room

FIRST_RECORDS = 64
"""The number of records in the first epoch of a start."""

TARGET_S = 4.0
"""The target time for an epoch's records. Larger epochs would gain little: their fixed cost is a few percent of it."""

GROWTH = 4
"""An epoch has at most this many times the records of the one before."""

CALM_EPOCHS = 20
"""After this many successful epochs, one may again be as large as the one that failed."""

_FADE = 0.5
"""Earlier measurements count half as much with each new one."""

_LEAST_BYTES = 1.0

_JOB_FIXED_S = 0.01
"""A job of less time than this says nothing about the time of a record."""

_RECENT_EPOCHS = 8
_LEAST_SPREAD = 1.25
"""The fixed cost can be estimated if the largest recent epoch has at least this many times the records of the smallest."""

_ASSUMED_FIXED = 0.75
"""Until it can be estimated, the fixed cost is assumed to be this part of an epoch's time."""


class EpochSize:
    """The measurements of earlier epochs, and the size of the next that follows from them."""

    def __init__(
        self, most_records: int, most_bytes: int, target_s: float = TARGET_S, first_records: int = FIRST_RECORDS
    ) -> None:
        self.most_bytes = most_bytes
        self._most_records = most_records
        self._target_s = target_s
        self._records = min(first_records, most_records)
        self._is_first = True
        self._record_s = 0.0
        self._fixed_s: float | None = None
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT_EPOCHS)
        self._failed_at: int | None = None
        self._calm = 0
        self._sizes: dict[Partition, float] = {}
        self._sent_records = 0.0
        self._sent_bytes = 0.0

    @property
    def room(self) -> Room:
        """What the next epoch may take."""
        sent = self._sent_bytes / self._sent_records if self._sent_records else 0.0
        return Room(self._records, self.most_bytes, (self.bytes_of, lambda _: sent))

    def bytes_of(self, partition: Partition) -> float:
        """Return the bytes of a record of a partition; if unknown, the largest of its topic, or of all topics."""
        known = self._sizes.get(partition)
        if known is not None:
            return known
        same = [size for (topic, _), size in self._sizes.items() if topic == partition[0]]
        return max(same or self._sizes.values(), default=0.0)

    def read(self, sizes: Mapping[Partition, tuple[int, int]]) -> None:
        """Learn from the records and bytes that were read: sizes grow at once and shrink gradually."""
        for partition, (records, size) in sizes.items():
            if records:
                now = max(size / records, _LEAST_BYTES)
                known = self._sizes.get(partition, now)
                self._sizes[partition] = max(now, _FADE * known + (1 - _FADE) * now)

    def sent(self, records: int, size: int) -> None:
        """Learn how many bytes of rows an epoch's records gave."""
        self._sent_records = _FADE * self._sent_records + records
        self._sent_bytes = _FADE * self._sent_bytes + size

    def job_took(self, records: int, seconds: float) -> None:
        """Learn how long a job was busy with so many records, or that it was given up after this time."""
        if seconds > _JOB_FIXED_S:
            self._record_s = (seconds - _JOB_FIXED_S) / records

    def job_s(self, records: int) -> float:
        """Return how long a job of so many records is expected to take."""
        return records * self._record_s

    def went_well(self, records: int, seconds: float) -> None:
        """Learn from a committed epoch of so many records and seconds."""
        self._calm += 1
        if self._calm >= CALM_EPOCHS:
            self._failed_at = None
        if self._is_first:  # starting slots took longer than the records did
            self._is_first, seconds = False, min(seconds, self._target_s)
        else:
            self._learn_fixed(records, seconds)
        wanted = self._records
        spent_s = seconds - (self._fixed_s or 0.0)
        if spent_s > self._target_s:  # even if it was a small epoch
            wanted = min(wanted, int(records * max(self._target_s / spent_s, 0.5)))
        elif records * 2 >= wanted:  # a smaller epoch says nothing about a large one
            time_s = self._target_s
            if self._fixed_s is None:
                time_s, spent_s = time_s - _ASSUMED_FIXED * seconds, seconds - _ASSUMED_FIXED * seconds
            wanted = max(wanted, int(records * min(time_s / max(spent_s, 1e-6), GROWTH)))
        most = self._most_records if self._failed_at is None else min(self._most_records, self._failed_at // 2)
        self._records = max(1, min(most, wanted))

    def _learn_fixed(self, records: int, seconds: float) -> None:
        """Estimate the fixed cost of an epoch: the intercept of the line through the records and seconds of recent epochs.

        Keep the last estimate if recent epochs are too similar in size.
        """
        self._recent.append((records, seconds))
        sizes = [records for records, _ in self._recent]
        if max(sizes) < _LEAST_SPREAD * min(sizes):
            return
        mean_records, mean_s = sum(sizes) / len(sizes), sum(seconds for _, seconds in self._recent) / len(sizes)
        rise = sum((records - mean_records) * (seconds - mean_s) for records, seconds in self._recent)
        per_record = max(0.0, rise / sum((records - mean_records) ** 2 for records in sizes))
        shortest_s = min(seconds for _, seconds in self._recent)
        self._fixed_s = min(max(0.0, mean_s - per_record * mean_records), shortest_s)

    def was_too_large(self, records: int) -> None:
        """Learn that an epoch of so many records was too large."""
        self._failed_at, self._calm = records, 0
        in_time = self._target_s / self._record_s if self._record_s else records
        self._records = max(1, min(self._records, records // 2, int(in_time)))

    def was_given_up(self) -> None:
        """Let epochs grow again at once: the record that was too large is given up."""
        self._failed_at = None
