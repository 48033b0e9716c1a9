"""Applications of a single test, small enough to start and stop in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Store, StreamsBuilder, Topology, tumbling, until_window_closes


def settings_of_a_case(servers: str, directory: Path) -> dict[str, Any]:
    """Two lanes over four shards, with files below `directory`, and no admin server."""
    return {
        "bootstrap_servers": servers,
        "lanes": 2,
        "shards": 4,
        "state_dir": directory / "state",
        "admin_address": "off",
    }


def counts_and_windows(
    source: str, out: str, counts: str = "counts", windows: str = "windows", *, is_renamed: bool = False
) -> Topology:
    """Counts, and windows that are held back until they are closed: their buffer and the stream time are state too.

    If the stores have other names, `is_renamed` says that they take over the content of those with these.
    """
    builder = StreamsBuilder()
    records = builder.stream(source, value=str).group_by_key()
    before = ("counts", "windows") if is_renamed else (None, None)
    kept, by_window = (Store(name, caching=False, renamed_from=old) for name, old in zip((counts, windows), before, strict=True))
    records.count(store=kept).to_stream().to(out, value=int)
    held = records.windowed_by(tumbling("10s", grace="0s")).count(store=by_window).suppress(until_window_closes()).to_stream()
    held.map(lambda at, count: (f"{at.key}@{at.start}", count)).to(out, key=str, value=int)
    return builder.build()
