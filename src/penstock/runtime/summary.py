"""What a notebook shows of a running application at the end of a cell: where it is now, and where its dashboard is."""

from __future__ import annotations

from typing import Protocol

from penstock.markup import html_line, html_link, html_table
from penstock.observation import Health, Recorder
from penstock.runtime.states import State


class Summarised(Protocol):
    """What is shown of an application."""

    application_id: str
    recorder: Recorder
    health: Health
    admin_url: str | None

    @property
    def state(self) -> State:
        """The current state."""

    @property
    def epoch(self) -> int:
        """The committed epoch."""


def summary(of: Summarised) -> str:
    """Return what is shown, as HTML; `penstock.notebooks` shows more, and keeps it up to date."""
    recorder, state = of.recorder, of.state.value
    lags = [report.lag for report in recorder.partitions.values()]
    rows: list[tuple[str, object]] = [
        ("state", f"{state}, paused" if recorder.is_paused else state),
        ("epoch", of.epoch),
        ("records", recorder.totals.records),
        ("lag", "unknown" if any(lag < 0 for lag in lags) else sum(lags)),
    ]
    parts = [html_table(("application", of.application_id), rows)]
    parts += [html_line(f"{what}: {why}") for what, why in of.health.ready()]
    if of.admin_url is not None:
        parts.append(html_link(of.admin_url, "dashboard"))
    return "".join(parts)
