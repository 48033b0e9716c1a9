"""Windows as values, checked by Kafka Streams' rules, and the arithmetic of which windows contain a time.

Everything is in milliseconds. Without a grace period a window closes as soon as stream time passes its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import TopologyError
from penstock.timing.durations import MAX_MS, Duration, Instant, duration_ms, instant_ms


class Windows(Protocol):
    """Custom fixed-size windows: what `windowed_by` accepts besides Penstock's own.

    `windows_for` returns the starts of the windows that contain a time, earliest first; each is `[start, start + size_ms)`.
    """

    @property
    def size_ms(self) -> int:
        """How long each window is."""

    @property
    def grace_ms(self) -> int:
        """How long after a window's end late records are still accepted."""

    @property
    def retention_ms(self) -> int:
        """The minimum time that a store must keep a window: size plus grace."""

    def windows_for(self, timestamp: int) -> Iterable[int]:
        """Return the starts of the windows that contain `timestamp`."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size, aligned to time 0, a new one every `advance_ms`: `[start, start + size)`."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise TopologyError(f"The window size must be positive, got {self.size_ms} ms.")
        if not 0 < self.advance_ms <= self.size_ms:
            raise TopologyError(
                f"The window advance must be positive and at most the window size of {self.size_ms} ms, got {self.advance_ms} ms."
            )
        _check_grace(self.grace_ms)

    @property
    def retention_ms(self) -> int:
        """The minimum time that a store must keep a window; also Kafka Streams' default."""
        return self.size_ms + self.grace_ms

    def windows_for(self, timestamp: int) -> range:
        """Return the starts of the windows that contain `timestamp`, earliest first; no window starts before time 0."""
        advance = self.advance_ms
        first = max(0, timestamp - self.size_ms + advance) // advance * advance
        return range(first, timestamp + 1, advance)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows `[start, start + difference]` that follow the records: one ends at each record, one starts directly after it."""

    time_difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        # Kafka Streams accepts zero here and fails on the first record, whose window would be empty.
        if self.time_difference_ms <= 0:
            raise TopologyError(f"The time difference of sliding windows must be positive, got {self.time_difference_ms} ms.")
        _check_grace(self.grace_ms)

    @property
    def size_ms(self) -> int:
        """From a window's start to its end, both inclusive."""
        return self.time_difference_ms

    @property
    def retention_ms(self) -> int:
        """The minimum time that a store must keep a window: a new window is filled from others up to two lengths back."""
        return 2 * self.time_difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Windows that grow with activity and end when a key has no records for longer than `gap_ms`: `[first, last]` record."""

    gap_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise TopologyError(f"The inactivity gap of session windows must not be negative, got {self.gap_ms} ms.")
        _check_grace(self.grace_ms)

    @property
    def retention_ms(self) -> int:
        """The minimum time that a store must keep a session; also Kafka Streams' default."""
        return self.gap_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window without end, `[start, ∞)`; earlier records are in no window."""

    start_ms: int = 0

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise TopologyError(f"The window start must not be negative, got {self.start_ms} ms.")

    @property
    def size_ms(self) -> int:
        """The largest possible time."""
        return MAX_MS

    @property
    def grace_ms(self) -> int:
        """No record is late for a window without end."""
        return 0

    @property
    def retention_ms(self) -> int:
        """Unlimited."""
        return MAX_MS

    def windows_for(self, timestamp: int) -> range:
        """Return the start of the window, if it contains `timestamp`."""
        start = self.start_ms
        return range(start, start + 1) if timestamp >= start else range(0)


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """Which records of the other stream join a record: from `before_ms` earlier to `after_ms` later, both inclusive.

    Either may be negative, as long as the window does not end before it starts.
    """

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        if self.size_ms < 0:
            raise TopologyError(
                f"A join window must not end before it starts, got {self.before_ms} ms before and {self.after_ms} ms after."
            )
        _check_grace(self.grace_ms)

    @property
    def size_ms(self) -> int:
        """From the earliest to the latest partner."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """The minimum time that a store must keep a record."""
        return self.size_ms + self.grace_ms


def tumbling(size: Duration, *, grace: Duration | None = None) -> TimeWindows:
    """Adjacent windows of one size: every record is in exactly one. Kafka's `TimeWindows.ofSizeAndGrace`."""
    size_ms = duration_ms(size, "window size")
    return TimeWindows(size_ms, size_ms, _grace_ms(grace))


def hopping(size: Duration, advance: Duration, *, grace: Duration | None = None) -> TimeWindows:
    """Windows of one size that start every `advance` and so overlap. Kafka's `TimeWindows….advanceBy`."""
    return TimeWindows(duration_ms(size, "window size"), duration_ms(advance, "window advance"), _grace_ms(grace))


def sliding(difference: Duration, *, grace: Duration | None = None) -> SlidingWindows:
    """Windows over records at most `difference` apart. Kafka's `SlidingWindows.ofTimeDifferenceAndGrace`."""
    return SlidingWindows(duration_ms(difference, "time difference"), _grace_ms(grace))


def session(gap: Duration, *, grace: Duration | None = None) -> SessionWindows:
    """Windows of activity, separated by pauses longer than `gap`. Kafka's `SessionWindows.ofInactivityGapAndGrace`."""
    return SessionWindows(duration_ms(gap, "inactivity gap"), _grace_ms(grace))


def unlimited(start: Instant = 0) -> UnlimitedWindows:
    """One window that starts at `start` and never ends. Kafka's `UnlimitedWindows`."""
    return UnlimitedWindows(instant_ms(start, "window start"))


def join_windows(within: Duration | tuple[Duration, Duration], grace: Duration | None = None) -> JoinWindows:
    """The window of a stream–stream join: `within` in both directions, or `(before, after)`. Kafka's `JoinWindows`."""
    if isinstance(within, tuple):
        if len(within) != 2:
            raise TopologyError(f"within: expected one duration or a pair (before, after), got {within!r}.")
        before_ms, after_ms = duration_ms(within[0], "within, before"), duration_ms(within[1], "within, after")
    else:
        before_ms = after_ms = duration_ms(within, "within")
    return JoinWindows(before_ms, after_ms, _grace_ms(grace))


def _grace_ms(grace: Duration | None) -> int:
    return 0 if grace is None else duration_ms(grace, "grace")


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise TopologyError(f"The grace period must not be negative, got {grace_ms} ms.")
