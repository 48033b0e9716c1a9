"""Compares what was found in Kafka with the oracle; every difference is a violation with a name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from verification.chaos import oracle
from verification.chaos.oracle import Seen, Sequences
from verification.chaos.payments import STORES, Payment

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """One difference from what must be there."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}: {self.detail}"


class Output(NamedTuple):
    """A record of an output topic, decoded; `number` is its payment's, or a count."""

    partition: int
    offset: int
    key: str
    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Found:
    """What Kafka has of an application, as seen by a reader of committed records.

    `outputs` are by kind (echo, sums, groups, windows), in the order of partition and offset; `tables` are the contents of the
    changelogs, by store; `offsets` are those that the group has committed, by partition of the input.
    """

    outputs: Mapping[str, Sequence[Output]]
    tables: Mapping[str, Mapping[str, Any]]
    offsets: Mapping[int, int]


def check(payments: Iterable[Payment], found: Found) -> list[Violation]:
    """Whether outputs and tables are exactly those of the payments before the committed offsets.

    This holds at any moment, since all three are committed atomically; nothing of payments after the offsets may be visible.
    """
    return check_each(dict.fromkeys(("echo", *STORES), payments), found)


def check_each(payments: Mapping[str, Iterable[Payment]], found: Found) -> list[Violation]:
    """The same if outputs and tables are not all about the same payments: `payments` has those of each kind."""
    done = {kind: oracle.within(sent, found.offsets) for kind, sent in payments.items()}
    return [*check_outputs(done, found.outputs), *check_tables(done, found)]


def check_outputs(done: Mapping[str, Sequence[Payment]], outputs: Mapping[str, Sequence[Output]]) -> Iterator[Violation]:
    """Nothing is lost, duplicated or reordered per key, in any output."""
    for kind, expect in (("echo", oracle.echoes), ("sums", oracle.sums), ("windows", oracle.windows)):
        yield from scattered(kind, outputs[kind])
        yield from compared(kind, expect(done[kind]), by_key(outputs[kind]))
    yield from scattered("groups", outputs["groups"])
    yield from _check_groups(oracle.groups(done["groups"]), by_key(outputs["groups"]))


def check_tables(done: Mapping[str, Sequence[Payment]], found: Found) -> Iterator[Violation]:
    """The changelogs contain the oracle's tables."""
    expected: dict[str, Mapping[str, Any]] = {
        "sums": oracle.table(oracle.sums(done["sums"])),
        "windows": oracle.table(oracle.windows(done["windows"])),
        "ledger": oracle.ledger(done["ledger"]),
    }
    # The application decides which payment of a group was the last; that it sent it is checked with the outputs.
    expected["groups"] = {
        group: {
            "count": len(payments),
            "sum": sum(p.amount for p in payments.values()),
            "number": _last_number(found.outputs["groups"], group),
        }
        for group, payments in oracle.groups(done["groups"]).items()
    }
    for store in STORES:
        yield from compare_tables(f"table {store}", expected[store], found.tables[store])


def compare_tables(where: str, expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[Violation]:
    """Both contents of a table are equal."""
    for kind, keys in (("missing", expected.keys() - got.keys()), ("surplus", got.keys() - expected.keys())):
        if keys:
            yield Violation(kind, where, f"{len(keys)} keys, such as {sorted(keys)[:SHOWN]}")
    wrong = sorted(key for key in expected.keys() & got.keys() if expected[key] != got[key])
    if wrong:
        shown = "; ".join(f"{key} is {got[key]}, not {expected[key]}" for key in wrong[:SHOWN])
        yield Violation("wrong", where, f"{len(wrong)} keys: {shown}")


def check_offsets(offsets: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Violation]:
    """The group has committed every partition up to its end."""
    for partition, end in sorted(ends.items()):
        if offsets.get(partition) != end:
            yield Violation("stale", "offsets", f"partition {partition} is at {offsets.get(partition)}, its end is {end}")


def check_reader(during: Mapping[Any, Sequence[Any]], after: Mapping[Any, Sequence[Any]]) -> Iterator[Violation]:
    """A reader that ran during the faults has seen what a reader sees afterwards: records by partition, in order."""
    for place in sorted(during.keys() | after.keys()):
        early, late = list(during.get(place, ())), list(after.get(place, ()))
        if early != late:
            first = next((n for n, (a, b) in enumerate(zip(early, late, strict=False)) if a != b), min(len(early), len(late)))
            detail = f"{len(early)} records during, {len(late)} after, first difference at number {first}: "
            yield Violation("unstable", f"{place}", detail + f"{early[first : first + 1]} and {late[first : first + 1]}")


def check_settled(open_transactions: Iterable[str], unstable: Mapping[str, tuple[int, int]]) -> Iterator[Violation]:
    """No transaction is left open, and none blocks readers of any topic."""
    for transactional_id in sorted(open_transactions):
        yield Violation("open", "transactions", transactional_id)
    for place, (stable, end) in sorted(unstable.items()):
        yield Violation("open", place, f"readers of committed records stop at {stable}, the end is {end}")


class Letter(NamedTuple):
    """A record that cannot be processed: its position in the input, and its bytes."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def check_dead_letters(poison: Iterable[Letter], letters: Iterable[Letter]) -> Iterator[Violation]:
    """Every bad record is a dead letter once, byte by byte, and nothing else is."""
    expected, got = Counter(poison), Counter(letters)
    for kind, difference in (("lost", expected - got), ("surplus", got - expected)):
        if difference:
            shown = [(letter.partition, letter.offset, (letter.value or b"")[:40]) for letter in list(difference)[:SHOWN]]
            yield Violation(kind, "dead letters", f"{difference.total()}: {shown}")


def check_replays(letters: Iterable[str], replayed: Iterable[str]) -> Iterator[Violation]:
    """Every letter is replayed once, and nothing else is; both are identified by the positions of letters."""
    expected, got = Counter(letters), Counter(replayed)
    for kind, difference in (("lost", expected - got), ("doubled", got - expected)):
        if difference:
            yield Violation(kind, "replays", f"{difference.total()} letters, such as {sorted(difference)[:SHOWN]}")


def by_key(outputs: Iterable[Output]) -> Sequences:
    """The outputs of each key, in order."""
    found: Sequences = defaultdict(list)
    for output in outputs:
        found[output.key].append(Seen(output.number, output.value))
    return found


def scattered(kind: str, outputs: Iterable[Output]) -> Iterator[Violation]:
    """No key is in two partitions, where it would have no order."""
    partitions: dict[str, set[int]] = defaultdict(set)
    for output in outputs:
        partitions[output.key].add(output.partition)
    scattered = sorted(key for key, found in partitions.items() if len(found) > 1)
    if scattered:
        yield Violation("scattered", kind, f"{len(scattered)} keys are in several partitions: {scattered[:SHOWN]}")


def compared(kind: str, expected: Sequences, got: Sequences) -> Iterator[Violation]:
    """Each key has the expected sequence."""
    for key in sorted(expected.keys() | got.keys()):
        wanted, seen = expected.get(key, []), got.get(key, [])
        if wanted != seen:
            yield _difference(kind, key, wanted, seen)


def _difference(kind: str, key: str, wanted: list[Seen], seen: list[Seen]) -> Violation:
    where = f"{kind} of {key}"
    of_numbers = _difference_of_numbers(where, [s.number for s in wanted], [s.number for s in seen])
    if of_numbers is not None:
        return of_numbers
    for one, other in zip(wanted, seen, strict=True):
        if one.number != other.number:
            return Violation("reordered", where, f"{other.number} came in place of {one.number}")
        if one.value != other.value:
            return Violation("wrong", where, f"{other.value}, not {one.value}")
    raise AssertionError(f"{where}: no difference")


def _difference_of_numbers(where: str, wanted: list[int], seen: list[int]) -> Violation | None:
    expected, got = Counter(wanted), Counter(seen)
    doubled = sorted(number for number, times in got.items() if times > max(1, expected[number]))
    lost = sorted((expected - got).elements())
    foreign = sorted(got.keys() - expected.keys())
    for name, numbers in (("doubled", doubled), ("lost", lost), ("uncommitted", foreign)):
        if numbers:
            return Violation(name, where, f"{len(numbers)} of {expected.total()}, such as {numbers[:SHOWN]}")
    return None


def _check_groups(expected: Mapping[str, Mapping[int, Payment]], got: Sequences) -> Iterator[Violation]:
    for group in sorted(expected.keys() | got.keys()):
        where, payments, seen = f"groups of {group}", expected.get(group, {}), got.get(group, [])
        of_numbers = _difference_of_numbers(where, list(payments), [s.number for s in seen])
        if of_numbers is not None:
            yield of_numbers
            continue
        order = [payments[s.number] for s in seen]
        totals: list[Seen] = []
        for payment in order:
            totals.append(Seen(payment.number, oracle.added(totals, payment)))
        wrong = next((n for n, (one, other) in enumerate(zip(totals, seen, strict=True)) if one != other), None)
        if wrong is not None:
            yield Violation("wrong", where, f"{seen[wrong].value}, not {totals[wrong].value}")
        yield from _reordered(where, order)


def _reordered(where: str, order: Iterable[Payment]) -> Iterator[Violation]:
    """However partitions interleave, the payments of one come in the order of their offsets."""
    partitions: dict[int, list[Payment]] = defaultdict(list)
    for payment in order:
        partitions[payment.partition].append(payment)
    for partition, payments in sorted(partitions.items()):
        for one, other in pairwise(payments):
            if one.offset > other.offset:
                detail = f"{other.number} came after {one.number}, which follows it in partition {partition}"
                yield Violation("reordered", where, detail)
                break


def _last_number(outputs: Sequence[Output], group: str) -> int | None:
    return next((output.number for output in reversed(outputs) if output.key == group), None)
