"""The figures as text: for the terminal, and for their places in docs/scaling.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from verification.harness.processes import ROOT
from verification.scaling.constants import Constants
from verification.scaling.designs import DESIGNS, breaking, sized, tightest
from verification.scaling.sizing import Host, Load, Sizing, size

PAGE = ROOT / "docs" / "scaling.md"
Row = Sequence[str]

LOADS = {
    "the example": Load(),
    "the example, with caches": replace(Load(), results=0.35, changed=0.35),
    "with caches and without exchanges": replace(Load(), exchanges=0, results=0.35, changed=0.35),
    "the example, with ten stores": replace(Load(), stores=10),
    "the example, with records of 10 kB": replace(Load(), record_bytes=10_000),
}
"""What the page compares designs with."""


def said(value: float) -> str:
    """Return three digits of a number."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:g}"


def said_bytes(value: float) -> str:
    """Return a number of bytes with its unit."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{said(value / factor)} {unit}"
    return f"{said(value)} B"


def sizing_rows(sizing: Sizing) -> list[Row]:
    """Return what a load needs, line by line."""
    return [
        ("cores of executors", said(sizing.executor_cores)),
        ("executors, one per host", f"{sizing.executors:,}, bound by {sizing.bound_by}"),
        ("lanes", f"{sizing.lanes:,}"),
        ("shards", f"{sizing.shards:,}"),
        ("partitions of each source, at least", f"{sizing.source_partitions:,}"),
        ("partitions that a transaction writes to", f"{sizing.written_partitions:,}"),
        ("rows to sinks and changelogs", f"{said(sizing.rows)}/s, {said_bytes(sizing.row_bytes_per_s)}/s"),
        ("state of all lanes", said_bytes(sizing.state_bytes)),
        ("memory of a host", said_bytes(sizing.host_memory)),
        ("disk of a host", said_bytes(sizing.host_disk)),
        ("network of a host", f"{said_bytes(sizing.host_network)}/s"),
        ("memory of the driver", said_bytes(sizing.driver_memory)),
        ("network of the driver", f"{said_bytes(sizing.driver_network)}/s"),
        ("brokers", f"{sizing.brokers:,}"),
        ("written to brokers, before replication", f"{said_bytes(sizing.broker_network)}/s"),
        ("restore of all lanes from changelogs", f"{said(sizing.restore_s)} s"),
    ]


def design_rows(load: Load, constants: Constants, host: Host) -> list[Row]:
    """Return for each design whether it carries the load, and where it breaks."""
    rows: list[Row] = []
    for design in DESIGNS:
        limit = tightest(design, sized(design, load, constants, host), constants, host)
        found = breaking(design, load, constants, host)
        fits = "yes" if limit.use <= 1 else "no"
        where = f"{said(found.records)} records/s, {_hosts(found.sizing.executors)}"
        rows.append((design.name, f"{fits}: {100 * limit.use:.0f} % of {limit.name}", where, found.limit.name))
    return rows


def _hosts(number: int) -> str:
    return "one host" if number == 1 else f"{number:,} hosts"


def breaking_rows(constants: Constants, host: Host) -> list[Row]:
    """Return where each design breaks, by load."""
    rows: list[Row] = []
    for name, load in LOADS.items():
        found = [breaking(design, load, constants, host) for design in DESIGNS]
        rows.append((name, *(f"{said(one.records)}: {one.limit.name}" for one in found)))
    return rows


def constant_rows(constants: Constants) -> list[Row]:
    """Return the constants with their sources."""
    return [(f"`{one.name}`", said(one.value), one.unit, one.source) for one in constants.each()]


def table(head: Row, rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figures(constants: Constants, host: Host) -> dict[str, str]:
    """Return what belongs into the places of the page."""
    load = Load()
    return {
        "example": table(("what", "needed"), sizing_rows(size(load, constants, host))),
        "designs": table(("design", "carries it", "breaks at", "what breaks"), design_rows(load, constants, host)),
        "loads": table(("load", *(design.name for design in DESIGNS)), breaking_rows(constants, host)),
        "constants": table(("constant", "value", "unit", "source"), constant_rows(constants)),
    }


def with_figures(page: str, places: Mapping[str, str]) -> str:
    """Return the page with these figures in place of the old ones."""
    for name, text in places.items():
        begin, end = f"<!-- {name}: written by python -m verification.scaling --page -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{PAGE.name} has no place for {name}. Cure: put {begin} and {end} back.")
        page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page
