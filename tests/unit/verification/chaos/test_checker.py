"""The checker of the chaos campaign fails on every violation it exists for, and on nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from verification.chaos import checker, oracle
from verification.chaos.checker import Found, Letter, Output, Violation
from verification.chaos.payments import Payment
from verification.chaos.reader import Read

PARTITIONS = 2


def payments(count: int = 60) -> list[Payment]:
    chooser = random.Random(7)
    ends = [0] * PARTITIONS
    steps: dict[str, int] = {}
    made = []
    for number in range(count):
        key = f"k{chooser.randrange(5)}"
        partition = int(key[1:]) % PARTITIONS
        step = steps.get(key, 0)
        place = (partition, ends[partition], number * 100)
        made.append(Payment(number, key, step, f"g{chooser.randrange(3)}", chooser.randrange(100), *place))
        ends[partition] += 1
        steps[key] = step + 1
    return made


def ends_of(sent: list[Payment]) -> dict[int, int]:
    return {p: sum(payment.partition == p for payment in sent) for p in range(PARTITIONS)}


def outputs_of(sequences: oracle.Sequences) -> list[Output]:
    found = []
    for partition in range(PARTITIONS):
        offset = 0
        for key, seen in sorted(sequences.items()):
            if len(key) % PARTITIONS == partition:
                for number, value in seen:
                    found.append(Output(partition, offset, key, number, value))
                    offset += 1
    return found


def groups_of(done: list[Payment]) -> oracle.Sequences:
    """The output of a correct application for groups, which may interleave partitions in any way."""
    found: oracle.Sequences = {}
    for payment in sorted(done, key=lambda p: (p.offset, p.partition)):
        before = found.setdefault(payment.group, [])
        before.append(oracle.Seen(payment.number, oracle.added(before, payment)))
    return found


def right(sent: list[Payment], offsets: dict[int, int] | None = None) -> Found:
    """What Kafka has after a correct run."""
    offsets = ends_of(sent) if offsets is None else offsets
    done = oracle.within(sent, offsets)
    sequences = {
        "echo": oracle.echoes(done),
        "sums": oracle.sums(done),
        "windows": oracle.windows(done),
        "groups": groups_of(done),
    }
    tables: dict[str, Any] = {store: oracle.table(sequences[store]) for store in ("sums", "windows", "groups")}
    tables["ledger"] = oracle.ledger(done)
    return Found({kind: outputs_of(found) for kind, found in sequences.items()}, tables, offsets)


def changed(found: Found, kind: str, change: Callable[[list[Output]], None]) -> Found:
    """The same with another output."""
    outputs = list(found.outputs[kind])
    change(outputs)
    return replace(found, outputs={**found.outputs, kind: outputs})


def kinds(violations: list[Violation]) -> set[str]:
    return {violation.kind for violation in violations}


def test_a_correct_result_passes_at_the_end_and_at_any_commit() -> None:
    sent = payments()
    assert checker.check(sent, right(sent)) == []
    assert checker.check(sent, right(sent, {0: 7, 1: 11})) == []
    assert checker.check(sent, right(sent, {})) == []


@pytest.mark.parametrize("kind", ["echo", "sums", "windows", "groups"])
def test_a_lost_record_is_found(kind: str) -> None:
    sent = payments()
    assert "lost" in kinds(checker.check(sent, changed(right(sent), kind, lambda outputs: outputs.__delitem__(3))))


@pytest.mark.parametrize("kind", ["echo", "sums", "windows", "groups"])
def test_a_duplicate_is_found(kind: str) -> None:
    sent = payments()
    assert "doubled" in kinds(checker.check(sent, changed(right(sent), kind, lambda outputs: outputs.insert(4, outputs[3]))))


@pytest.mark.parametrize("kind", ["echo", "sums", "windows"])
def test_two_reordered_records_of_a_key_are_found(kind: str) -> None:
    def swap(outputs: list[Output]) -> None:
        at = next(n for n in range(len(outputs)) if outputs[n].key == outputs[n + 1].key)
        outputs[at], outputs[at + 1] = outputs[at + 1], outputs[at]

    sent = payments()
    assert kinds(checker.check(sent, changed(right(sent), kind, swap))) == {"reordered"}


def test_a_group_may_interleave_partitions_but_not_reorder_one() -> None:
    sent = payments()
    by_partition = sorted(sent, key=lambda p: (-p.partition, p.offset))
    backwards = sorted(sent, key=lambda p: (p.partition, -p.offset))
    for order, expected in ((by_partition, set()), (backwards, {"reordered"})):
        found: oracle.Sequences = {}
        for payment in order:
            before = found.setdefault(payment.group, [])
            before.append(oracle.Seen(payment.number, oracle.added(before, payment)))
        observed = right(sent)
        tables = {**observed.tables, "groups": oracle.table(found)}
        observed = Found({**observed.outputs, "groups": outputs_of(found)}, tables, observed.offsets)
        assert kinds(checker.check(sent, observed)) == expected


@pytest.mark.parametrize("kind", ["echo", "sums", "groups"])
def test_a_wrong_value_is_found(kind: str) -> None:
    def add(outputs: list[Output]) -> None:
        field = "amount" if kind == "echo" else "sum"
        outputs[5] = outputs[5]._replace(value={**outputs[5].value, field: outputs[5].value[field] + 1})

    sent = payments()
    assert kinds(checker.check(sent, changed(right(sent), kind, add))) == {"wrong"}


def test_a_sum_that_continues_from_older_state_is_found() -> None:
    """Every record is there once, but the totals are wrong."""

    def forget(outputs: list[Output]) -> None:
        for at, output in enumerate(outputs):
            if output.key == "g1" and output.value["count"] > 4:
                value = {**output.value, "count": output.value["count"] - 1}
                outputs[at] = output._replace(value=value)

    sent = payments()
    assert "wrong" in kinds(checker.check(sent, changed(right(sent), "groups", forget)))


@pytest.mark.parametrize("kind", ["echo", "sums", "windows", "groups"])
def test_a_torn_epoch_one_output_is_behind_the_offsets(kind: str) -> None:
    sent = payments()
    before, after = right(sent, {0: 10, 1: 10}), right(sent, {0: 14, 1: 13})
    torn = replace(after, outputs={**after.outputs, kind: before.outputs[kind]})
    assert "lost" in kinds(checker.check(sent, torn))


def test_a_torn_epoch_the_offsets_are_behind_the_outputs() -> None:
    sent = payments()
    torn = replace(right(sent, {0: 14, 1: 13}), offsets={0: 10, 1: 10})
    assert kinds(checker.check(sent, torn)) >= {"uncommitted", "wrong"}


@pytest.mark.parametrize("store", ["sums", "windows", "groups", "ledger"])
def test_a_torn_epoch_a_table_is_behind(store: str) -> None:
    sent = payments()
    before, after = right(sent, {0: 10, 1: 10}), right(sent, {0: 14, 1: 13})
    torn = replace(after, tables={**after.tables, store: before.tables[store]})
    found = checker.check(sent, torn)
    assert found
    assert {violation.where for violation in found} == {f"table {store}"}


@pytest.mark.parametrize("store", ["sums", "windows", "groups", "ledger"])
@pytest.mark.parametrize(("kind", "change"), [("missing", "less"), ("surplus", "more"), ("wrong", "other")])
def test_a_wrong_table_is_found(store: str, kind: str, change: str) -> None:
    sent = payments()
    found = right(sent)
    table: dict[str, Any] = dict(found.tables[store])
    key = min(table)
    if change == "less":
        del table[key]
    else:
        table["nobody" if change == "more" else key] = -1
    (violation,) = checker.check(sent, replace(found, tables={**found.tables, store: table}))
    assert (violation.kind, violation.where) == (kind, f"table {store}")
    assert str(violation).startswith(f"{kind} in table {store}: 1 keys")


def test_records_without_a_payment_are_found() -> None:
    sent = payments()
    ghost = Output(0, 99, "ghost", 10**9, {"number": 10**9})
    assert kinds(checker.check(sent, changed(right(sent), "echo", lambda outputs: outputs.append(ghost)))) == {"uncommitted"}


def test_a_key_in_two_partitions_is_found() -> None:
    sent = payments()
    moved = changed(right(sent), "echo", lambda outputs: outputs.__setitem__(-1, outputs[-1]._replace(partition=1)))
    assert "scattered" in kinds(checker.check(sent, moved))


def test_stale_offsets_are_found() -> None:
    assert not list(checker.check_offsets({0: 5, 1: 7}, {0: 5, 1: 7}))
    assert kinds(list(checker.check_offsets({0: 5, 1: 6}, {0: 5, 1: 7}))) == {"stale"}
    assert kinds(list(checker.check_offsets({0: 5}, {0: 5, 1: 0}))) == {"stale"}


def test_records_that_disappear_are_found() -> None:
    stays = {("echo", 0): [Read(0, b"k", b"1"), Read(2, b"k", b"2")]}
    assert not list(checker.check_reader(stays, stays))
    for seen in ([Read(0, b"k", b"1")], [Read(0, b"k", b"1"), Read(1, b"k", b"aborted"), Read(2, b"k", b"2")], []):
        assert kinds(list(checker.check_reader({("echo", 0): seen}, stays))) == {"unstable"}
    assert kinds(list(checker.check_reader(stays, {}))) == {"unstable"}


def test_open_transactions_are_found() -> None:
    assert not list(checker.check_settled([], {}))
    assert [str(found) for found in checker.check_settled(["chaos"], {"echo-0": (3, 5)})] == [
        "open in transactions: chaos",
        "open in echo-0: readers of committed records stop at 3, the end is 5",
    ]


def test_dead_letters_account_for_every_bad_record_once() -> None:
    poison = [Letter(0, 3, b"k", b"{"), Letter(1, 3, b"k", None)]
    assert not list(checker.check_dead_letters(poison, reversed(poison)))
    assert kinds(list(checker.check_dead_letters(poison, poison[:1]))) == {"lost"}
    assert kinds(list(checker.check_dead_letters(poison, [*poison, poison[0]]))) == {"surplus"}
    assert kinds(list(checker.check_dead_letters(poison, [poison[0], Letter(1, 3, b"k", b"")]))) == {"lost", "surplus"}


def test_a_letter_is_replayed_once() -> None:
    letters = ["dead-0-1", "dead-0-2", "dead-1-1"]
    assert not list(checker.check_replays(letters, reversed(letters)))
    assert kinds(list(checker.check_replays(letters, letters[1:]))) == {"lost"}
    assert kinds(list(checker.check_replays(letters, [*letters, "dead-0-2"]))) == {"doubled"}


@pytest.mark.parametrize("kind", ["echo", "sums", "windows", "groups"])
def test_an_output_may_be_about_other_payments_than_the_rest(kind: str) -> None:
    sent = payments()
    others = dict.fromkeys(("echo", "sums", "windows", "groups", "ledger"), sent)
    assert checker.check_each(others, right(sent)) == []
    assert checker.check_each({**others, kind: sent[:-1]}, right(sent))
