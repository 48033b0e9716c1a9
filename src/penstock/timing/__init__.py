"""Time as values: windows, durations and instants, and what a suppression waits for. Arithmetic only; no clock ticks here."""

from penstock.timing.durations import MAX_MS, Duration, Instant, duration_ms, instant_ms
from penstock.timing.suppressed import (
    BufferConfig,
    Suppressed,
    WhenFull,
    max_bytes,
    max_records,
    unbounded,
    until_time_limit,
    until_window_closes,
)
from penstock.timing.windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    hopping,
    join_windows,
    session,
    sliding,
    tumbling,
    unlimited,
)

__all__ = [
    "MAX_MS",
    "BufferConfig",
    "Duration",
    "Instant",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "Suppressed",
    "TimeWindows",
    "UnlimitedWindows",
    "WhenFull",
    "duration_ms",
    "hopping",
    "instant_ms",
    "join_windows",
    "max_bytes",
    "max_records",
    "session",
    "sliding",
    "tumbling",
    "unbounded",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
]
