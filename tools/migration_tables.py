"""Writes the tables of docs/migrating/kafka-streams.md: every verb and every setting of Kafka Streams, and what it becomes.

`python -m tools.migration_tables` writes them, with `--check` it only compares. The source is that of docs/parity.md: names of
Kafka Streams come from its jars, and those of Penstock are looked up in Penstock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verification.conformance.parity.method_map import MAPPING
from verification.conformance.parity.page import Row, rows
from verification.conformance.parity.reflection import load
from verification.conformance.parity.rules import Never, To
from verification.conformance.parity.settings import SETTINGS, said

PAGE = Path(__file__).resolve().parents[1] / "docs" / "migrating" / "kafka-streams.md"

GROUPS = {
    "Builder": ("StreamsBuilder",),
    "Streams": ("kstream.KStream", "kstream.BranchedKStream"),
    "Tables": ("kstream.KTable", "kstream.GlobalKTable"),
    "Aggregations": (
        "kstream.KGroupedStream",
        "kstream.KGroupedTable",
        "kstream.TimeWindowedKStream",
        "kstream.SessionWindowedKStream",
        "kstream.CogroupedKStream",
        "kstream.TimeWindowedCogroupedKStream",
        "kstream.SessionWindowedCogroupedKStream",
    ),
    "Windows and suppression": (
        "kstream.TimeWindows",
        "kstream.SlidingWindows",
        "kstream.SessionWindows",
        "kstream.UnlimitedWindows",
        "kstream.JoinWindows",
        "kstream.Suppressed",
        "kstream.Suppressed.BufferConfig",
        "kstream.EmitStrategy",
        "kstream.Windowed",
        "kstream.Window",
    ),
    "Options": (
        "kstream.Consumed",
        "AutoOffsetReset",
        "kstream.Produced",
        "kstream.Grouped",
        "kstream.Joined",
        "kstream.StreamJoined",
        "kstream.TableJoined",
        "kstream.Materialized",
        "kstream.Named",
        "kstream.Branched",
        "kstream.Repartitioned",
        "kstream.Printed",
    ),
    "Processors": (
        "processor.api.Processor",
        "processor.api.FixedKeyProcessor",
        "processor.api.ProcessorContext",
        "processor.api.FixedKeyProcessorContext",
        "processor.api.ProcessingContext",
        "processor.api.Record",
        "processor.api.FixedKeyRecord",
        "processor.api.RecordMetadata",
        "processor.PunctuationType",
        "processor.Cancellable",
    ),
    "Stores": ("state.Stores", "state.StoreBuilder"),
    "Topology": ("Topology",),
    "Tests": ("TopologyTestDriver", "TestInputTopic", "TestOutputTopic", "test.TestRecord"),
}
"""The tables in the order of the page. Classes that are in none follow in a last one, so that no verb can be missing."""

REST = "Everything else"
_CALL = re.compile(r"([\w.]+)(?:\((.*)\))?")


@dataclass
class Verb:
    """All overloads of a method together."""

    java: str
    targets: dict[str, list[list[str] | None]] = field(default_factory=dict)
    """What its overloads become, each with its arguments; None for an attribute, which has none."""
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add an overload."""
        if isinstance(row.outcome, Never):
            self.reasons.append(row.outcome.reason)
            return
        found = _CALL.fullmatch(row.said)
        assert found is not None, row.said
        arguments = None if found[2] is None else [each for each in found[2].split(", ") if each]
        self.targets.setdefault(found[1], []).append(arguments)
        if isinstance(row.outcome, To) and row.outcome.note:
            self.notes.append(row.outcome.note)

    def penstock(self) -> str:
        """What it becomes: a call with what all overloads have, and the options that some of them have."""
        if not self.targets:
            return f"never: {self.reasons[0]}"
        shown = "; ".join(_call(target, overloads) for target, overloads in self.targets.items())
        return ", ".join([shown, *dict.fromkeys(self.notes)])


def _call(target: str, overloads: Sequence[list[str] | None]) -> str:
    """A call with the arguments of all overloads, then the options."""
    calls = [overload for overload in overloads if overload is not None]
    if not calls:
        return f"`{target}`"
    every = [argument for argument in calls[0] if all(argument in other for other in calls)]
    options = dict.fromkeys(argument for overload in calls for argument in overload if argument not in every)
    call = f"`{target}({', '.join(every)})`"
    return f"{call} with {', '.join(f'`{option}`' for option in options)}" if options else call


def verbs(judged: Iterable[Row]) -> dict[str, dict[str, Verb]]:
    """The verbs of every class of Kafka Streams, by name."""
    found: dict[str, dict[str, Verb]] = {}
    for row in judged:
        method = row.method
        if method.is_object_protocol:
            continue
        simple = method.owner.rpartition(".")[2]
        java = f"new {simple}" if method.name == "new" else f"{simple}.{method.name}" if method.static else method.name
        found.setdefault(method.owner, {}).setdefault(method.name, Verb(java)).add(row)
    return found


def verb_tables() -> str:
    """All verbs as Markdown."""
    by_owner = verbs(rows(load(), MAPPING))
    grouped = {owner for owners in GROUPS.values() for owner in owners}
    unknown = grouped - by_owner.keys()
    assert not unknown, f"Kafka Streams has no {', '.join(sorted(unknown))}"
    groups = {**GROUPS, REST: tuple(owner for owner in by_owner if owner not in grouped)}
    return "\n".join(line for title, owners in groups.items() for line in _table(title, owners, by_owner))


def _table(title: str, owners: Sequence[str], by_owner: dict[str, dict[str, Verb]]) -> Iterator[str]:
    yield from (f"### {title}", "", "| Kafka Streams | | Penstock |", "|---|---|---|")
    for owner in owners:
        for verb in by_owner[owner].values():
            yield f"| `{owner.removeprefix('kstream.')}` | `{verb.java}` | {verb.penstock()} |"
    yield ""


def settings_table() -> str:
    """All settings as Markdown."""
    lines = ["| Kafka Streams | Penstock |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {said(name, to)} |" for name, to in sorted(SETTINGS.items())), ""])


def filled(page: str) -> str:
    """The page with its tables as they must be now."""
    for name, text in (("verbs", verb_tables()), ("settings", settings_table())):
        begin, end = f"<!-- {name}: written by python -m tools.migration_tables -->\n", f"<!-- end of {name} -->"
        before, has_begin, rest = page.partition(begin)
        _, has_end, after = rest.partition(end)
        assert has_begin, f"{PAGE.name} has lost the mark before its {name}"
        assert has_end, f"{PAGE.name} has lost the mark behind its {name}"
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def main(arguments: Sequence[str]) -> int:
    """Write the tables, or compare them; return the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = filled(text)
    if "--check" in arguments:
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
