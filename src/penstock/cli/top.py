"""`penstock top`: shows a running application on one screen, from the reports of its admin server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.requests import AdminConnection, RefusedRequestError, UnreachableError
from penstock.cli.screen import moment, output_console, shown, table

_EPOCHS = 50
_ROWS = 20
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Look(NamedTuple):
    """The reports of an application at one moment."""

    state: Mapping[str, Any]
    watermarks: Mapping[str, Any]
    barriers: Mapping[str, Any]


def watch(server: AdminConnection, every_s: float, is_once: bool) -> None:
    """Show the application until interrupted, or once. If there is no answer, or a refusal,
    keep the last screen and add the error.
    """
    console = output_console()
    picture = screen(look(server))
    if is_once:
        console.print(picture)
        return
    with Live(picture, console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every_s)
                try:
                    picture = screen(look(server))
                    live.update(picture, refresh=True)
                except (UnreachableError, RefusedRequestError) as error:
                    live.update(Group(picture, shown(str(error), style="red")), refresh=True)
        except KeyboardInterrupt:
            pass


def look(server: AdminConnection) -> Look:
    """Request all reports that the screen shows."""
    return Look(server.get("/state"), server.get("/watermarks"), server.get(f"/debug/barriers?last={_EPOCHS}"))


def screen(seen: Look) -> RenderableType:
    """Return the screen for one set of reports."""
    epochs = seen.barriers["recent"]
    parts = [
        _head(seen),
        _phases(epochs),
        _partitions(seen.watermarks["partitions"]),
        _lanes(epochs),
        _stores(seen.state["stores"]),
    ]
    return Group(*(part for part in parts if part is not None))


def _head(seen: Look) -> Text:
    epochs, current = seen.barriers["recent"], seen.barriers["current"]
    rate, per_second = _rates(epochs)
    lags = [place["lag"] for place in seen.watermarks["partitions"]]
    lag = "unknown" if None in lags else f"{sum(lags):,}"
    state = shown(seen.state["state"], style="green" if seen.state["state"] == "running" else "yellow")
    head = Text.assemble(shown(seen.state["application_id"], style="bold"), "  ", state)
    if seen.state.get("paused"):
        head.append("  paused", style="yellow")
    head.append(f"  epoch {_number(seen.state['epoch'])}  {rate:,.0f} records/s  {per_second:.1f} epochs/s  lag {lag}")
    engine = seen.state.get("engine", {})
    if "slots" in engine:
        hosts = ", ".join(f"{host} {count}" for host, count in sorted(engine["hosts"].items()))
        head.append_text(shown(f"\nengine {engine['name']}: {engine['slots']} {engine['kind']} ({hosts})"))
    restore = seen.state.get("restore")
    if restore is not None and not restore["done"]:
        head.append(f"\nrestoring: {restore['fraction']:.0%} in {restore['seconds']:.0f} s", style="yellow")
    if current is not None:
        head.append_text(shown(f"\ncurrent: epoch {current['epoch']}, {current['phase']} for {current['phase_seconds']:.1f} s"))
    return head


def _rates(epochs: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return records and epochs per second over recent epochs, including the pauses between them."""
    if not epochs:
        return 0.0, 0.0
    begin_ms, last = min(epoch["began_ms"] for epoch in epochs), max(epochs, key=lambda epoch: epoch["began_ms"])
    seconds = max((last["began_ms"] - begin_ms) / 1000 + last["seconds"], 0.001)
    return sum(epoch["records"] for epoch in epochs) / seconds, len(epochs) / seconds


def _phases(epochs: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the mean of each phase, in the order of the newest epoch."""
    if not epochs:
        return None
    names = dict.fromkeys(name for epoch in epochs for name in epoch["phases"])
    means = {name: sum(epoch["phases"].get(name, 0.0) for epoch in epochs) / len(epochs) for name in names}
    row = [f"{mean * 1000:.1f} ms" for mean in means.values()]
    return _with_figures(table(tuple(means), [row], f"mean of the last {len(epochs)} epochs"), names)


def _partitions(partitions: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the partitions that are furthest behind."""
    behind = sorted(partitions, key=lambda place: (place["lag"] is None, place["lag"] or 0), reverse=True)[:_ROWS]
    rows = [
        (
            place["topic"],
            _number(place["partition"]),
            _number(place["offset"]),
            _number(place["lag"]),
            _watermark(place),
        )
        for place in behind
    ]
    made = table(("topic", "partition", "offset", "lag", "watermark"), rows, _title("partitions", partitions))
    return _with_figures(made, ("partition", "offset", "lag")) if rows else None


def _lanes(epochs: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return what lanes did in recent epochs."""
    records: dict[tuple[int, int], int] = {}
    seconds: dict[tuple[int, int], float] = {}
    for lane in (lane for epoch in epochs for lane in epoch["lanes"]):
        place = (lane["lane"], lane["stage"])
        records[place] = records.get(place, 0) + lane["records"]
        seconds[place] = seconds.get(place, 0.0) + lane["seconds"]
    places = sorted(records)[:_ROWS]
    rows = [(str(lane), str(stage), f"{records[lane, stage]:,}", f"{seconds[lane, stage]:.3f} s") for lane, stage in places]
    made = table(("lane", "stage", "records", "busy"), rows, f"{_title('lanes', records)} in the last {len(epochs)} epochs")
    return _with_figures(made, ("lane", "stage", "records", "busy")) if rows else None


def _stores(stores: Sequence[Mapping[str, Any]]) -> Table | None:
    rows = [
        (store["name"], store["kind"].replace("_", " "), _number(store["entries"]), _size(store["bytes"]))
        for store in stores[:_ROWS]
    ]
    made = table(("store", "kind", "entries", "size"), rows, _title("stores", stores))
    return _with_figures(made, ("entries", "size")) if rows else None


def _with_figures(made: Table, names: Iterable[str]) -> Table:
    """Return a table whose columns of these names are aligned to the right."""
    wanted = set(names)
    for column in made.columns:
        if str(column.header) in wanted:
            column.justify = "right"
    return made


def _title(what: str, things: Sequence[object] | Mapping[Any, object]) -> str:
    return what if len(things) <= _ROWS else f"{what} ({_ROWS} of {len(things)})"


def _watermark(place: Mapping[str, Any]) -> str:
    if place["idle"]:
        return "idle"
    return "–" if place["watermark"] is None else moment(place["watermark"])


def _number(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _size(size: float | None) -> str:
    if size is None:
        return "–"
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
