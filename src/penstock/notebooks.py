"""`panel`: what an application does now, in a notebook, from its admin server. `watch` keeps it up to date.

The notebook's page cannot ask the admin server itself: the server answers no pages of others. So this process asks, and shows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from penstock.cli.requests import AdminConnection, UnreachableError
from penstock.errors import ConfigError
from penstock.markup import html_line, html_table
from penstock.runtime.application import RunningApplication
from penstock.settings import Secret
from penstock.timing import Duration, duration_ms

_SNAPSHOT = "/dashboard/snapshot"
_ENDED = ("not_running", "error")


def panel(application: RunningApplication | str = "http://127.0.0.1:7070", *, token: str | None = None) -> Panel:
    """Return a panel of an application in this process, or of the one whose admin server is at an address.

    The token for an address is read from `PENSTOCK_ADMIN_TOKEN`, or from where `token` says: `env:NAME` or `file:PATH`.

    Example:
        >>> running = app.start()  # doctest: +SKIP
        >>> panel(running).watch()  # doctest: +SKIP
    """
    if isinstance(application, str):
        return Panel(AdminConnection.at(application, token))
    if application.admin_url is None:
        raise ConfigError("admin_address: it is off, so that there is nothing to ask. Start the application with one.")
    own = application.config.admin_read_token or application.config.admin_token
    connection = AdminConnection.at(application.admin_url)
    return Panel(connection if own is None else replace(connection, token=Secret(own)))


@dataclass(frozen=True, slots=True)
class Panel:
    """An application as a notebook shows it; each time it is shown, as it is then."""

    server: AdminConnection

    def _repr_html_(self) -> str:
        return _html(self.server.get(_SNAPSHOT))

    def watch(self, every: Duration = "1s", *, most: int | None = None) -> None:
        """Show the panel, and update it in its place until the application ends, the cell is interrupted, or `most` updates."""
        shown = _display(_Html(self._repr_html_()))
        updates = 0
        try:
            while most is None or updates < most:
                time.sleep(duration_ms(every, "every") / 1000)
                updates += 1
                try:
                    seen = self.server.get(_SNAPSHOT)
                except UnreachableError as error:
                    shown.update(_Html(html_line(str(error))))
                    return
                shown.update(_Html(_html(seen)))
                if seen["state"] in _ENDED:
                    return
        except KeyboardInterrupt:  # how a notebook stops a cell
            return


@dataclass(frozen=True, slots=True)
class _Html:
    """A text that notebooks show as HTML."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def _display(shown: _Html) -> Any:
    """Show it, and return the handle by which it is replaced."""
    try:
        display = import_module("IPython.display").display
    except ModuleNotFoundError:
        raise ConfigError("watch() needs a notebook, where IPython is. On a terminal, use `penstock top`.") from None
    return display(shown, display_id=True)


def _html(seen: Mapping[str, Any]) -> str:
    state = f"{seen['state']}, paused" if seen["paused"] else seen["state"]
    lags = [partition["lag"] for partition in seen["partitions"]]
    facts = [
        ("state", state),
        ("epoch", _figure(seen["epoch"])),
        ("records", f"{seen['records']:,}"),
        ("records/s", _rounded(seen["records_per_s"])),
        ("lag", "unknown" if None in lags else f"{sum(lags):,}"),
    ]
    parts = [html_table(("application", seen["application"]), facts)]
    parts += [html_line(f"{problem['what']}: {problem['why']}") for problem in (*seen["live"], *seen["ready"])]
    parts.append(_of(seen["partitions"], "sources", topic="topic", partition="partition", offset="offset", lag="lag"))
    parts.append(_of(seen["stores"], "stores", store="name", kind="kind", entries="entries", bytes="bytes"))
    parts.append(_of(seen["dropped"], "dropped", node="node", reason="reason", records="count"))
    return "".join(parts)


def _of(rows: list[Mapping[str, Any]], caption: str, **columns: str) -> str:
    """A table of reports: its columns, each with the name that it has there; nothing if there are none."""
    cells = [[_figure(row[name]) for name in columns.values()] for row in rows]
    return html_table(tuple(columns), cells, caption=caption) if rows else ""


def _figure(value: object) -> object:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else value


def _rounded(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:,.0f}"
