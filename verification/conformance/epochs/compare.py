"""The differences between the judge and the host, as readable text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from verification.conformance.compare import Difference
from verification.conformance.epochs.host import Outcome
from verification.conformance.epochs.internals import Contents
from verification.conformance.epochs.judge import Judged, Sent
from verification.conformance.epochs.spec import EpochCase

SHOWN = 3
MOST_INTERLEAVINGS = 2_000


def differences(case: EpochCase, outcome: Outcome) -> list[Difference]:
    """All differences of a case."""
    if (outcome.failure is None) != (outcome.expected_failure is None):
        text = f"  judge: {outcome.expected_failure or 'no failure'}\n  host:  {outcome.failure or 'no failure'}"
        return [Difference(case.id, "error", "", text)]
    found = [] if outcome.unstable is None else [Difference(case.id, "retry", "", f"  {outcome.unstable[:2_000]}")]
    if outcome.unclosed:
        found.append(Difference(case.id, "life", "", f"  never closed: {outcome.unclosed}"))
    found += _outputs(case, outcome)
    for expected, contents in outcome.committed_reads:
        found += _stores(case, "committed", expected, contents)
    if outcome.failure is None:
        for what, contents in (("store", outcome.stores), ("changelog", outcome.changelogs)):
            found += _stores(case, what, outcome.expected_stores, contents)
        if outcome.dropped != outcome.expected_dropped:
            text = f"  judge: {dict(outcome.expected_dropped)}\n  host:  {dict(outcome.dropped)}"
            found.append(Difference(case.id, "dropped", "", text))
    return found


def _outputs(case: EpochCase, outcome: Outcome) -> list[Difference]:
    expected: defaultdict[str, list[Judged]] = defaultdict(list)
    actual: defaultdict[str, list[Sent]] = defaultdict(list)
    for judged in sorted(outcome.expected, key=lambda judged: judged.when):  # a stage sends before the next one begins
        expected[judged.sent.topic].append(judged)
    for sent in outcome.actual:
        actual[sent.topic].append(sent)
    found = []
    for topic in sorted(expected.keys() | actual.keys()):
        text = _unlike(expected[topic], actual[topic])
        if text is None and _has_one_order(expected[topic]):
            text = _sequences([judged.sent for judged in expected[topic]], actual[topic], "in the whole topic")
        if text is not None:
            found.append(Difference(case.id, "output", topic, text))
    return found


def _has_one_order(rows: Sequence[Judged]) -> bool:
    """Whether one source partition causes all rows of a topic, without an exchange in between."""
    return len({row.cause.origin for row in rows}) == 1 and all(row.cause.origin and not row.cause.hops for row in rows)


def _unlike(expected: Sequence[Judged], actual: Sequence[Sent]) -> str | None:
    """Where the sequences of a key differ."""
    theirs: defaultdict[bytes | None, list[Judged]] = defaultdict(list)
    ours: defaultdict[bytes | None, list[Sent]] = defaultdict(list)
    for judged in expected:
        theirs[judged.sent.key].append(judged)
    for sent in actual:
        ours[sent.key].append(sent)
    for key in sorted(theirs.keys() | ours.keys(), key=repr):
        of_key = theirs[key]
        if len({row.shard for row in of_key}) <= 1 or _has_one_order(of_key):
            text = _sequences([row.sent for row in of_key], ours[key], f"of key {key!r}")
        else:
            text = _interleaved(of_key, ours[key], key)
        if text is not None:
            return text
    return None


def _sequences(expected: Sequence[Sent], actual: Sequence[Sent], what: str) -> str | None:
    if list(expected) == list(actual):
        return None
    pairs = zip(expected, actual, strict=False)
    at = next((number for number, (one, two) in enumerate(pairs) if one != two), min(len(expected), len(actual)))
    lines = [f"  {what}: first difference at {at} of {len(expected)} (judge) and {len(actual)} (host)"]
    if at:
        lines.append(f"  both before: {_show(expected[at - 1])}")
    lines.append(f"  judge: {_show(expected[at]) if at < len(expected) else 'nothing'}")
    lines.append(f"  host:  {_show(actual[at]) if at < len(actual) else 'nothing'}")
    return "\n".join(lines)


def _interleaved(expected: Sequence[Judged], actual: Sequence[Sent], key: bytes | None) -> str | None:
    """A key that several shards write: each shard's rows in order, in any interleaving."""
    by_shard: defaultdict[int, list[Sent]] = defaultdict(list)
    for row in expected:
        by_shard[row.shard].append(row.sent)
    if Counter(row.sent for row in expected) != Counter(actual):
        theirs, ours = sorted((row.sent for row in expected), key=repr), sorted(actual, key=repr)
        return _sequences(theirs, ours, f"of key {key!r}, sorted")
    sequences = list(by_shard.values())
    places = {tuple(0 for _ in sequences)}
    for number, sent in enumerate(actual):
        places = {
            (*place[:shard], at + 1, *place[shard + 1 :])
            for place in places
            for shard, at in enumerate(place)
            if at < len(sequences[shard]) and sequences[shard][at] == sent
        }
        if not places:
            return f"  of key {key!r}: row {number} of the host comes before an earlier one of its shard: {_show(sent)}"
        if len(places) > MOST_INTERLEAVINGS:
            return None
    return None


def _show(sent: Sent) -> str:
    extra = "" if sent.partition is None else f" partition {sent.partition}"
    extra += f" headers {sent.headers}" if sent.headers else ""
    return f"{_short(sent.key)} = {_short(sent.value)} @{sent.timestamp}{extra}"


def _short(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)})"


def _stores(
    case: EpochCase, what: str, judged: Sequence[Contents], contents: Sequence[tuple[range, Contents]]
) -> list[Difference]:
    found = []
    for shards, stores in contents:
        for name, entries in stores.items():
            expected = Counter(map(repr, (entry for shard in shards for entry in judged[shard][name])))
            actual = Counter(map(repr, entries))
            if expected != actual:
                missing = [_short(entry) for entry in sorted((expected - actual).elements())[:SHOWN]]
                surplus = [_short(entry) for entry in sorted((actual - expected).elements())[:SHOWN]]
                text = f"  shards {list(shards)}\n  only the judge has: {missing}\n  only the host has:  {surplus}"
                found.append(Difference(case.id, what, name, text))
    return found
