"""Which letters may be replayed, and how the ledger decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import RecordMetadata
from penstock.handlers import FailureKind
from penstock.letters import TOO_OFTEN, Ledger, Letter, Refused, Replay, Rules, Target, judged, replay_headers
from tests.unit.letters.letters import SOURCE, letter

RULES = Rules(application="app", target=Target.SOURCE, max_attempts=3, partitions={"in": 3, "app-s-changelog": 8}.get)
INTO_NODES = replace(RULES, target=Target.NODE)


def refusal(found: Letter, ledger: Ledger | None = None, rules: Rules = RULES) -> str:
    verdict = judged(found, ledger or Ledger("id"), rules)
    assert isinstance(verdict, Refused)
    return verdict.why


def replayed(found: Letter, ledger: Ledger, rules: Rules = RULES) -> Replay:
    verdict = judged(found, ledger, rules)
    assert isinstance(verdict, Replay)
    ledger.note(verdict)
    return verdict


def test_a_letter_is_replayed_to_where_its_record_came_from() -> None:
    assert replayed(letter(), Ledger("id")) == Replay(letter(), SOURCE, None)
    assert replayed(letter(), Ledger("id"), INTO_NODES).node == "map"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (letter(kind=FailureKind.LATE), "a late record stays late"),
        (letter(source=None), "a timer or a cache"),
        (letter(application="other"), "it belongs to application 'other'"),
        (letter(application=""), "does not say which application"),
        (letter(source=RecordMetadata("gone", 0, 1)), "'gone' does not exist"),
        (letter(source=RecordMetadata("in", 3, 1)), "'in' has no partition 3"),
        (letter(source=RecordMetadata("app-s-changelog", 0, 1)), "is internal"),
        (letter(source=RecordMetadata("__consumer_offsets", 0, 1)), "is internal"),
    ],
)
def test_a_letter_that_cannot_be_replayed_is_refused_with_the_reason(found: Letter, why: str) -> None:
    assert why in refusal(found)


def test_a_letter_that_failed_too_often_is_not_replayed() -> None:
    found = letter()
    for attempt in range(3):
        assert found.attempt == attempt
        replayed(found, Ledger("id"))
        found = letter(attempt + 1, headers=replay_headers(found, found.headers, None))
    assert refusal(found) == TOO_OFTEN


def test_a_letter_is_replayed_once_even_after_a_restart() -> None:
    first = Ledger("id")
    row = first.row(replayed(letter(5), first))
    assert row[0] == b"dead-0-5"
    assert refusal(letter(5), first) == "already replayed"
    second = Ledger("id")
    second.take(*row)
    assert len(second) == 1
    assert refusal(letter(5), second) == "already replayed"
    replayed(letter(6, source=RecordMetadata("in", 0, 1)), second)


def test_replays_from_a_deleted_topic_do_not_count() -> None:
    first, second = Ledger("id"), Ledger("of the topic created again")
    second.take(*first.row(replayed(letter(5), first)))
    second.take(b"dead-0-6", None)
    assert len(second) == 0
    replayed(letter(5), second)


def test_two_letters_of_one_record_are_one_replay_through_the_source() -> None:
    ledger = Ledger("id")
    replayed(letter(5, node="one"), ledger)
    assert "for another letter of the same record" in refusal(letter(6, node="two"), ledger)
    assert "for another letter of the same record" in refusal(letter(6, node="two"), ledger, INTO_NODES)


def test_two_letters_of_one_record_are_two_replays_into_nodes() -> None:
    ledger = Ledger("id")
    replayed(letter(5, node="one"), ledger, INTO_NODES)
    assert "use --to node for this letter" in refusal(letter(6, node="two"), ledger)
    replayed(letter(6, node="two"), ledger, INTO_NODES)
    assert "for another letter of the same record" in refusal(letter(7, node="two"), ledger, INTO_NODES)


def test_an_obstacle_on_the_way_to_a_node_is_reported() -> None:
    rules = replace(INTO_NODES, obstacle=lambda topic, node: f"no way from {topic} to {node}")
    assert refusal(letter(), rules=rules) == "no way from in to map"
