"""The parity page: every method with its equivalent in Penstock, as Markdown, and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from verification.conformance.parity.penstock_names import StaleNameError, call
from verification.conformance.parity.reflection import VERSION
from verification.conformance.parity.rules import EVERY_CASE, Method, Missing, Never, Outcome, Rules, To, judge


@dataclass(frozen=True)
class Row:
    """A method and its outcome; `said` is the checked call in Penstock of a mapped method."""

    method: Method
    outcome: Outcome
    said: str = ""


def rows(methods: Sequence[Method], rules: Rules) -> list[Row]:
    """Judge all methods; raise StaleNameError if Penstock lacks a name that a rule has."""
    judged: list[Row] = []
    stale: list[str] = []
    for method in methods:
        outcome = judge(method, rules)
        try:
            judged.append(Row(method, outcome, call(method, outcome) if isinstance(outcome, To) else ""))
        except StaleNameError as error:
            stale.append(f"{method.owner}.{method.signature}: {error}")
    if stale:
        raise StaleNameError("\n".join(stale))
    return judged


def counts(judged: Sequence[Row]) -> dict[str, int]:
    """The number of methods, in total and by outcome."""
    of = Counter(type(row.outcome) for row in judged)
    return {"methods": len(judged), "mapped": of[To], "never": of[Never], "missing": of[Missing]}


def verbs(judged: Sequence[Row]) -> set[str]:
    """The conformance verbs that the page refers to."""
    found = {verb for row in judged if isinstance(row.outcome, To) for verb in row.outcome.verbs}
    return found - {EVERY_CASE}


def markdown(judged: Sequence[Row]) -> str:
    """The page. The same rows give the same text."""
    parts = [_opening(judged)]
    by_owner = sorted(judged, key=lambda row: _place(row.method.owner))
    for owner, group in groupby(by_owner, key=lambda row: row.method.owner):
        shown = [row for row in group if not row.method.is_object_protocol]
        if shown:
            parts.append(_table(owner, shown))
    return "\n".join(parts)


def _opening(judged: Sequence[Row]) -> str:
    total = counts(judged)
    reasons = Counter(row.outcome.reason for row in judged if isinstance(row.outcome, Never))
    lines = [
        "# Parity with Kafka Streams",
        "",
        f"Every public method of Kafka Streams {VERSION}'s DSL, windows, Processor API, `Topology` and test driver, read from",
        "its jars, and its equivalent in Penstock. `make parity` writes this page: names and arguments are looked up in",
        "Penstock itself, so the page cannot list what does not exist. The last column has the verbs of",
        "`make conformance` that compare the results with those of Kafka Streams.",
        "",
        "| methods | mapped | never | missing |",
        "|--:|--:|--:|--:|",
        f"| {total['methods']} | {total['mapped']} | {total['never']} | {total['missing']} |",
        "",
        '`key=` and `value=` take a serde or a type; a duration is `"5s"`, a `timedelta` or milliseconds; a',
        "function is any callable. Names without a module are those of `penstock`.",
        "",
        "Never, and why:",
        "",
        "| methods | reason |",
        "|--:|---|",
        *(f"| {count} | {reason} |" for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "",
    ]
    return "\n".join(lines)


def _table(owner: str, group: Sequence[Row]) -> str:
    lines = [f"## {owner.removeprefix('kstream.')}", "", "| Kafka Streams | Penstock | exercised by |", "|---|---|---|"]
    lines += [f"| `{_static(row.method)}{row.method.signature}` | {_said(row)} | {_verbs(row.outcome)} |" for row in group]
    return "\n".join([*lines, ""])


def _static(method: Method) -> str:
    return f"{method.owner.removeprefix('kstream.').rpartition('.')[2]}." if method.static else ""


def _said(row: Row) -> str:
    if isinstance(row.outcome, Never):
        return f"never: {row.outcome.reason}"
    if isinstance(row.outcome, Missing):
        return f"**missing**: {row.outcome.suggestion}"
    return f"`{row.said}`" + (f", {row.outcome.note}" if row.outcome.note else "")


def _verbs(outcome: Outcome) -> str:
    return ", ".join(outcome.verbs) if isinstance(outcome, To) else ""


def _place(owner: str) -> tuple[int, str]:
    """In the order in which users meet them: builder, streams and tables, then the rest of the DSL, then other packages."""
    first = ("StreamsBuilder", "kstream.KStream", "kstream.KTable", "kstream.GlobalKTable")
    if owner in first:
        return first.index(owner), owner
    package = owner.partition(".")[0]
    return {"kstream": 10, "processor": 30, "state": 40}.get(
        package, 50 if "Test" in owner or owner.startswith("test") else 20
    ), owner
