"""The figures of a report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Content = Mapping[str, Any]
PHASES = ("start", "cold", "steady")


def markdown(content: Content) -> str:
    """All tables that the report has figures for."""
    machine = content.get("machine", {})
    intro = (
        f"Revision {content.get('revision') or 'unknown'}, {machine.get('cores')} cores, "
        f"{machine.get('memory_mb', 0) // 1000} GB of memory, {_rounds(content)}. Figures are medians, with "
        "the spread in brackets: the highest less the lowest, as a share of the median."
    )
    sections = [
        *_throughput(content),
        *_resources(content),
        *_latency(content),
        *_start(content),
        *_growth(content),
        *_goals(content),
    ]
    return "\n\n".join([intro, *sections]) + "\n"


def _rounds(content: Content) -> str:
    """How many rounds there were: parts of a report may come from different runs."""
    counts = sorted({len(each) for each in _found(content, "rounds") if each})
    if not counts:
        return "no rounds"
    return f"{counts[0]} to {counts[-1]} rounds" if len(counts) > 1 else f"{counts[0]} rounds"


def _found(content: Any, name: str) -> Iterator[Sequence[Any]]:
    if isinstance(content, Mapping):
        if isinstance(content.get(name), list):
            yield content[name]
        for part in content.values():
            yield from _found(part, name)


def _throughput(content: Content) -> Iterator[str]:
    workloads = content.get("throughput", {})
    if not workloads:
        return
    sides = _sides(workloads.values())
    rows = [
        [f"{letter}: {of['title']}", *(_figure(of.get(side), "per_s", "{:,.0f}") for side in sides)]
        for letter, of in workloads.items()
    ]
    names = [_named(side, *(of.get(side, {}) for of in workloads.values())) for side in sides]
    yield "### Throughput, records/s\n\n" + _table(["workload", *names], rows)
    notes = [
        f"- {letter}, {side}: {of[side]['left_out']}."
        for letter, of in workloads.items()
        for side in sides
        if "left_out" in of.get(side, {})
    ]
    if notes:
        yield "Left out:\n\n" + "\n".join(notes)


def _resources(content: Content) -> Iterator[str]:
    workloads = content.get("throughput", {})
    rows = []
    for letter, of in workloads.items():
        for side in _sides([of]):
            median = of[side].get("median")
            if median:
                parts = ", ".join(f"{part} {seconds:.3g}" for part, seconds in median["cpu_s_per_million"].items())
                busy = ", ".join(f"{phase} {median['utilisation'].get(phase, {}).get('all', 0):.0%}" for phase in PHASES)
                memory = f"{median['peak_pss_mb']:,.0f} / {median['peak_rss_mb']:,.0f}"
                rows.append([letter, _named(side, of[side]), f"{median['cpu_s_per_million_total']:.3g}", parts, memory, busy])
    if rows:
        header = ["workload", "side", "CPU s per million records", "by part", "peak PSS / RSS, MB", "cores in use"]
        yield "### CPU time, memory and utilisation of the cores\n\n" + _table(header, rows)


def _latency(content: Content) -> Iterator[str]:
    rows = []
    for exchanges, rates in content.get("latency", {}).items():
        for rate, of in rates.items():
            for side in _sides([of]):
                for span in ("after_60_s", "after_300_s"):
                    found = (of[side].get("median") or {}).get(span)
                    if found:
                        values = [f"{found[name]:,.0f}" for name in ("p50", "p95", "p99", "max")]
                        rows.append([exchanges, rate, _named(side, of[side]), span.replace("_", " "), *values])
    if rows:
        yield "### Latency, ms\n\n" + _table(["exchanges", "records/s", "side", "measured", "p50", "p95", "p99", "max"], rows)


def _start(content: Content) -> Iterator[str]:
    start, restore = content.get("start", {}), content.get("restore", {})
    names = ("cold_s", "warm_s", "with_archive_s")
    rows = [[_named(side, start[side]), *(_figure(start[side], name, "{:.1f}") for name in names)] for side in _sides([start])]
    if rows:
        yield "### Start to first commit, s\n\n" + _table(["side", "cold", "warm", "warm, with an archive of classes"], rows)
    names = ("cold_start_s", "killed_start_s", "warm_start_s")
    rows = [
        [f"{int(keys):,}", _named(side, of[side]), *(_figure(of[side], name, "{:.1f}") for name in names)]
        for keys, of in restore.items()
        for side in _sides([of])
    ]
    if rows:
        yield "### Start until all state answers, s\n\n" + _table(
            ["keys", "side", "without local state", "after SIGKILL", "after a stop"], rows
        )


def _growth(content: Content) -> Iterator[str]:
    rows = []
    for of, sizes in content.get("growth", {}).items():
        for size, at in sizes.items():
            if not isinstance(at, Mapping):
                continue
            for side in _sides([at]):
                figures = [
                    _figure(at[side], name, form) for name, form in (("cpu_us_per_record", "{:.2f}"), ("per_s", "{:,.0f}"))
                ]
                rows.append([of, f"{int(size):,}", _named(side, at[side]), *figures])
    if rows:
        yield "### Growth\n\n" + _table(["of", "size", "side", "CPU µs per record", "records/s"], rows)
    idle = content.get("idle", {})
    rows = [[_named(side, idle[side]), _figure(idle[side], "cpu_percent", "{:.2f}")] for side in _sides([idle])]
    if rows:
        yield "### Idle, % of a core\n\n" + _table(["side", "CPU"], rows)


def _goals(content: Content) -> Iterator[str]:
    goals = content.get("goals", {})
    rows = [
        [name, goal["goal"], f"{goal['measured']:g}", "yes" if goal["reached"] else "no"]
        for name, goal in goals.items()
        if goal["measured"] is not None
    ]
    alone = [[part, _way(where)] for part in ("timers", "calls", "queries") if (where := content.get(part, {}).get("ran_on"))]
    if alone:
        yield "### Parts without a rival\n\n" + _table(["part", "lanes"], alone)
    if rows:
        yield "### Goals\n\n" + _table(["goal", "bound", "measured", "reached"], rows)


def _sides(places: Iterable[Content]) -> list[str]:
    """The names of sides, in the order in which they appear."""
    return list(dict.fromkeys(name for of in places for name, value in of.items() if isinstance(value, Mapping)))


def _named(side: str, *of_side: Content) -> str:
    """A side by its name; Penstock's with engine, slots and Spark tasks, which each of its figures depends on."""
    ways = list(dict.fromkeys(_way(where) for of in of_side for where in of.get("ran_on", ())))
    if not ways and side.startswith("penstock"):
        ways = ["engine not recorded"]
    return f"{side} ({'; '.join(ways)})" if ways else side


def _way(where: Content) -> str:
    return f"engine {where['engine']}, slots {where['slots']}, Spark tasks {where['spark_tasks']}"


def _figure(of_side: Content | None, name: str, form: str) -> str:
    """The median with its spread; a dash if there is none."""
    if not of_side or "median" not in of_side:
        return "–"
    median, spread = of_side["median"].get(name), of_side["spread"].get(name)
    if median is None:
        return "–"
    return f"{form.format(median)} ({spread:.0%})" if spread else form.format(median)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    drawn = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in drawn)
