"""The differences between the test driver's result and a host's, as readable text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verification.integration.scenario import Entry, Output, Reading, Result, Scenario, Sent

SHOWN = 3


@dataclass(frozen=True)
class Difference:
    """One output or store that differs, and how."""

    scenario: str
    combination: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.scenario} ({self.combination}): {self.where}\n{self.text}"


def differences(scenario: Scenario, combination: str, caching: bool, expected: Result, actual: Result) -> list[Difference]:
    """All outputs and stores that differ."""
    known = {output.topic for output in scenario.outputs}
    found = [
        Difference(scenario.name, combination, f"output {topic}", "  is not one of the scenario's outputs")
        for topic in sorted((expected.outputs.keys() | actual.outputs.keys()) - known)
    ]
    for output in scenario.outputs:
        reading = output.reading(caching)
        theirs, ours = (result.outputs.get(output.topic, ()) for result in (expected, actual))
        if not any(record.partition is not None for record in theirs):
            ours = [record._replace(partition=None) for record in ours]  # Kafka's partitioner has chosen one by the key
        text = _unlike(_read(output, reading, theirs), _read(output, reading, ours))
        if text:
            found.append(Difference(scenario.name, combination, f"output {output.topic}, {reading.value}", text))
    for kind, stores in actual.stores.items():
        for name, lines in stores.items():
            is_dated = not (caching and name in scenario.undated)
            text = _unlike(_counted(expected.stores["stores"][name], is_dated), _counted(lines, is_dated))
            if text:
                found.append(Difference(scenario.name, combination, f"{kind}: {name}", text))
    return found


def _read(output: Output, reading: Reading, records: Sequence[Sent]) -> dict[Any, Any]:
    if reading is Reading.BAG:
        return dict(Counter(records))
    if reading is Reading.SEQUENCES:
        sequences: defaultdict[Any, list[Any]] = defaultdict(list)
        for key, value, timestamp, headers, partition in records:
            kind = output.kind(value) if key is not None else (value, timestamp)  # without a key there is no order
            sequences[key, partition, kind].append((value, timestamp, headers))
        return dict(sequences)
    table: dict[Any, Any] = {}
    for record in records:
        table[record.key] = (record.value, record.timestamp, record.headers) if reading is Reading.TABLE else record.value
        if record.value is None:
            del table[record.key]
    return table


def _counted(entries: Sequence[Entry], is_dated: bool) -> dict[Any, Any]:
    return dict(Counter((entry.key, entry.value, entry.timestamp if is_dated else None) for entry in entries))


def _unlike(expected: dict[Any, Any], actual: dict[Any, Any]) -> str:
    keys = [key for key in expected.keys() | actual.keys() if expected.get(key) != actual.get(key)]
    if not keys:
        return ""
    lines = [f"  {len(keys)} of {len(expected.keys() | actual.keys())} differ"]
    for key in sorted(keys, key=repr)[:SHOWN]:
        lines += [f"  {key!r}", *_first_unlike(expected.get(key), actual.get(key))]
    return "\n".join(lines)


def _first_unlike(expected: Any, actual: Any) -> list[str]:
    """Two sequences from their first difference."""
    if not (isinstance(expected, list) and isinstance(actual, list)):
        return [f"    driver: {_short(expected)}", f"    here:   {_short(actual)}"]
    pairs = zip(expected, actual, strict=False)
    at = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(actual)))
    return [
        f"    at {at}, of {len(expected)} (driver) and {len(actual)} (here)",
        f"    driver: {_short(expected[at : at + 3])}",
        f"    here:   {_short(actual[at : at + 3])}",
    ]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"
