"""What `suppress` holds back: until a window closes or a time limit passes, in a buffer of which size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.errors import TopologyError
from penstock.timing.durations import Duration, duration_ms


class WhenFull(Enum):
    """What a buffer does when a change no longer fits."""

    EMIT_EARLY = "emit_early"
    SHUT_DOWN = "shut_down"


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """How much a suppression may hold back (None: unlimited), and what it does when full; logged to a changelog by default."""

    max_records: int | None = None
    max_bytes: int | None = None
    when_full: WhenFull = WhenFull.SHUT_DOWN
    logged: bool = True
    changelog_config: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for bound, unit in ((self.max_records, "records"), (self.max_bytes, "bytes")):
            if bound is not None and bound < 0:
                raise TopologyError(f"Invalid limit of a suppression buffer: {bound} {unit}. It must not be negative.")

    @property
    def strict(self) -> bool:
        """Whether the buffer never emits early."""
        return self.when_full is WhenFull.SHUT_DOWN

    def with_max_records(self, limit: int) -> BufferConfig:
        """Limit the number of keys."""
        return replace(self, max_records=limit)

    def with_max_bytes(self, limit: int) -> BufferConfig:
        """Limit the bytes of keys and values."""
        return replace(self, max_bytes=limit)

    def with_no_bound(self) -> BufferConfig:
        """Remove the limits; strict, as the buffer is never full."""
        return replace(self, max_records=None, max_bytes=None, when_full=WhenFull.SHUT_DOWN)

    def emit_early_when_full(self) -> BufferConfig:
        """When full, emit the oldest changes early."""
        return replace(self, when_full=WhenFull.EMIT_EARLY)

    def shut_down_when_full(self) -> BufferConfig:
        """When full, stop the application: strict."""
        return replace(self, when_full=WhenFull.SHUT_DOWN)

    def with_logging_disabled(self) -> BufferConfig:
        """Keep no changelog: what is held back is lost with the lane's local state."""
        return replace(self, logged=False, changelog_config=())

    def with_logging_enabled(self, config: Mapping[str, str]) -> BufferConfig:
        """Keep a changelog topic with this configuration."""
        return replace(self, logged=True, changelog_config=tuple(config.items()))


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A suppression: hold a key's change back for `wait_ms` of stream time, or (None) until its window closes."""

    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    @property
    def final_results(self) -> bool:
        """Whether each key is emitted once, when its window closes; tombstones are then not emitted at all."""
        return self.wait_ms is None


_UNBOUNDED = BufferConfig()


def unbounded() -> BufferConfig:
    """Return a buffer without a limit."""
    return _UNBOUNDED


def max_records(limit: int) -> BufferConfig:
    """Return a buffer for `limit` keys, which emits early when full; see `shut_down_when_full()`."""
    return BufferConfig(max_records=limit, when_full=WhenFull.EMIT_EARLY)


def max_bytes(limit: int) -> BufferConfig:
    """Return a buffer for `limit` bytes, which emits early when full; see `shut_down_when_full()`."""
    return BufferConfig(max_bytes=limit, when_full=WhenFull.EMIT_EARLY)


def until_window_closes(buffer: BufferConfig = _UNBOUNDED, *, name: str | None = None) -> Suppressed:
    """Emit one result per window and key: the final one. The buffer must be strict, as an early result is not final."""
    if not buffer.strict:
        raise TopologyError(
            "until_window_closes needs a strict buffer, because a result emitted early is not final. "
            "Use unbounded() or shut_down_when_full()."
        )
    return Suppressed(None, buffer, name)


def until_time_limit(limit: Duration, buffer: BufferConfig = _UNBOUNDED, *, name: str | None = None) -> Suppressed:
    """Emit at most one change per key and `limit`; a later change replaces the pending one but does not restart its wait."""
    wait_ms = duration_ms(limit, "time limit")
    if wait_ms < 0:
        raise TopologyError(f"The time limit of a suppression must not be negative, got {wait_ms} ms.")
    return Suppressed(wait_ms, buffer, name)
