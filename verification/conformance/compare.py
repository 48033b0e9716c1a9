"""The differences between the oracle's result of a case and Penstock's, as readable text."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

from verification.conformance.left_out import is_left_out, is_left_out_failure

Result = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One difference: its kind, where it is, and both results."""

    case: str
    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return (
            f"case {self.case}: {self.kind} of {self.where}\n{self.text}"
            if self.where
            else f"case {self.case}: {self.kind}\n{self.text}"
        )


def differences(expected: Result, actual: Result) -> list[Difference]:
    """All differences between the results of Kafka Streams and Penstock."""
    case = expected["id"]
    found: list[Difference] = []
    if "describe" in expected and "describe" in actual:
        theirs, ours = settled(expected["describe"]), settled(actual["describe"])
        if theirs != ours:
            found.append(Difference(case, "describe", "", _text_difference(theirs, ours)))
    if "error" in expected or "error" in actual:
        text = _failures(expected.get("error"), actual.get("error"))
        return [*found, Difference(case, "error", "", text)] if text else found
    found.extend(_outputs(case, expected["outputs"], actual["outputs"]))
    found.extend(_effects(case, expected["effects"], actual["effects"]))
    found.extend(_stores(case, expected["stores"], actual["stores"]))
    return found


_NAMES = re.compile(r"(?<=--> ).*|(?<=<-- ).*|(?<=topics: \[)[^]]*|(?<=stores: \[)[^]]*")
_EXTRACTOR = re.compile(r"extractor class: .*\)")


def settled(description: str) -> str:
    """A description with the names of each list in order and without the identity of functions (see left_out)."""
    ordered = _NAMES.sub(lambda names: ", ".join(sorted(names.group().split(", "))), description)
    return _EXTRACTOR.sub("extractor class: any)", ordered)


def _failures(expected: Result | None, actual: Result | None) -> str | None:
    """Both must fail, and at the same step; the texts of the errors may differ."""
    if expected is not None and actual is not None and expected["step"] == actual["step"]:
        return None
    if expected is not None and is_left_out_failure(expected.get("cause", "")):
        return None
    return f"  Kafka Streams: {_failure(expected)}\n  Penstock:      {_failure(actual)}"


def _failure(error: Result | None) -> str:
    if error is None:
        return "no failure"
    where = "while building" if error["step"] < 0 else f"at step {error['step']}"
    cause = f" ({error['cause']})" if "cause" in error else ""
    return f"{error['class']} {where}: {error['message']}{cause}"


def _text_difference(expected: str, actual: str) -> str:
    lines = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "Kafka Streams", "Penstock", n=1, lineterm="")
    return "\n".join(f"  {line}" for line in lines)


def _outputs(case: str, expected: dict[str, list[Any]], actual: dict[str, list[Any]]) -> list[Difference]:
    found = []
    for topic in sorted(expected.keys() | actual.keys()):
        text = _rows(expected.get(topic, []), actual.get(topic, []), record_text)
        if text:
            found.append(Difference(case, "output", topic, text))
    return found


def _effects(case: str, expected: dict[str, list[str]], actual: dict[str, list[str]]) -> list[Difference]:
    found = []
    for name in sorted(expected.keys() | actual.keys()):
        text = _rows(expected.get(name, []), actual.get(name, []), str)
        if text:
            found.append(Difference(case, "effect", name, text))
    return found


def _stores(case: str, expected: dict[str, Result], actual: dict[str, Result]) -> list[Difference]:
    found = []
    for name in sorted(expected):
        theirs, ours = expected[name], actual.get(name, {"kind": "missing"})
        if theirs["kind"] in {"unreadable", "missing"} or is_left_out(name):
            continue
        if theirs["kind"] != ours["kind"]:
            found.append(Difference(case, "store", name, f"  Kafka Streams: {theirs['kind']}\n  Penstock:      {ours['kind']}"))
            continue
        rows, other_rows = theirs["entries"], ours["entries"]
        if theirs["kind"] != "key_value":
            rows, other_rows = sorted(rows, key=str), sorted(other_rows, key=str)
        text = _rows(rows, other_rows, str)
        if text:
            found.append(Difference(case, "store", name, text))
    return found


def _rows(expected: list[Any], actual: list[Any], show: Any) -> str | None:
    """The first row that differs, with the one before it."""
    if expected == actual:
        return None
    at = next(
        (i for i, (one, two) in enumerate(zip(expected, actual, strict=False)) if one != two), min(len(expected), len(actual))
    )
    lines = [f"  first difference at {at} of {len(expected)} (Kafka Streams) and {len(actual)} (Penstock)"]
    if at:
        lines.append(f"  both before:   {show(expected[at - 1])}")
    lines.append(f"  Kafka Streams: {show(expected[at]) if at < len(expected) else 'nothing'}")
    lines.append(f"  Penstock:      {show(actual[at]) if at < len(actual) else 'nothing'}")
    return "\n".join(lines)


def record_text(row: list[Any]) -> str:
    """An output record as text."""
    step, key, value, timestamp, headers = row
    extra = f" headers {headers}" if headers else ""
    return f"{_data(key)} = {_data(value)} @{timestamp}{extra} (step {step})"


def _data(data: str | None) -> str:
    if data is None:
        return "null"
    raw = bytes.fromhex(data)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"0x{data}"
    return repr(text) if text.isprintable() else f"0x{data} ({raw!r})"
