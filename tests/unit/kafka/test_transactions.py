"""What a driver makes of the answers of coordinators and leaders; tests/jvm/kafka has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.errors import BrokerError, CommitError, ConfigError, FencedError, TopicError
from penstock.kafka.commit import SourceOffset
from penstock.kafka.writers.batches import Format
from penstock.kafka.writers.brokers import Brokers, NoAnswerError
from penstock.kafka.writers.transactions import Transactions
from penstock.kafka.writers.writer import Writer


class Scripted(Brokers):
    """Brokers whose answers are given; each request takes one."""

    def __init__(self) -> None:
        self.time = 0.0
        super().__init__({"bootstrap.servers": "nowhere:1"}, 1.0, self.tick)
        self.answers: list[Any] = []
        self.level = 2

    def tick(self) -> float:
        self.time += 0.3
        return self.time

    async def levels(self) -> dict[str, int]:
        return {"transaction.version": self.level}

    async def _coordinator(self, kind: Any, key: str) -> int:
        return 1

    async def send(self, node: Any, request: Any, group: Any = None) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def coded(code: int, producer_epoch: int = 1) -> Any:
    return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=producer_epoch)


def of_partitions(code: int, topic: str = "in") -> Any:
    return SimpleNamespace(errors=[(topic, [(0, code)])])


@pytest.fixture
def brokers() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.close()


@pytest.fixture
def transactions(brokers: Scripted) -> Transactions:
    made = Transactions(brokers, Writer(brokers, Format.of("none", 1_000)), "app", 60_000)
    brokers.answers = [coded(0)]
    made.take_over()
    return made


def test_each_end_gives_the_next_epoch(brokers: Scripted, transactions: Transactions) -> None:
    assert transactions.begin().identity == ("app", 7, 1)
    assert transactions.is_open
    brokers.answers = [coded(0, 2)]
    assert transactions.commit()
    assert not transactions.is_open
    assert transactions.begin().identity == ("app", 7, 2)


def test_a_commit_without_an_answer_may_be_asked_for_again(brokers: Scripted, transactions: Transactions) -> None:
    transactions.begin()
    brokers.answers = [NoAnswerError("lost")]
    assert not transactions.commit()
    assert transactions.is_open
    with pytest.raises(BrokerError, match="confirmed that the transaction is aborted"):
        transactions.abort()
    brokers.answers = [coded(KafkaError.CONCURRENT_TRANSACTIONS), coded(KafkaError.NOT_COORDINATOR), coded(0, 2)]
    assert transactions.commit()


@pytest.mark.parametrize(("later_s", "kind"), [(0.0, FencedError), (100.0, CommitError)])
def test_a_fenced_transaction_may_have_been_open_for_too_long(
    brokers: Scripted, transactions: Transactions, later_s: float, kind: type[Exception]
) -> None:
    transactions.begin()
    brokers.time += later_s
    brokers.answers = [coded(KafkaError.INVALID_PRODUCER_EPOCH)]
    with pytest.raises(kind):
        transactions.commit()


def test_partitions_of_the_last_transaction_are_added_at_once(brokers: Scripted, transactions: Transactions) -> None:
    transactions.begin()
    transactions.wrote({("out", 1): 5})
    brokers.answers = [coded(0, 2)]
    transactions.commit()
    brokers.answers = [of_partitions(KafkaError.UNKNOWN_TOPIC_OR_PART, "out")]
    with pytest.raises(TopicError, match="of topic 'out'"):
        transactions.begin()
    brokers.answers = [coded(0, 3), NoAnswerError("lost")]
    with pytest.raises(BrokerError, match="Cannot add partitions"):
        transactions.begin()


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([NoAnswerError("lost")], BrokerError),
        ([coded(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)], ConfigError),
        ([coded(0), of_partitions(KafkaError.GROUP_AUTHORIZATION_FAILED)], ConfigError),
        ([coded(0), NoAnswerError("lost")], BrokerError),
    ],
)
def test_offsets_that_are_refused_raise(
    brokers: Scripted, transactions: Transactions, answers: list[Any], kind: type[Exception]
) -> None:
    transactions.begin()
    brokers.answers = answers
    with pytest.raises(kind):
        transactions.send_offsets("app", [SourceOffset("in", 0, 5, "m")])


def test_brokers_that_cannot_raise_epochs_are_refused(brokers: Scripted) -> None:
    brokers.level = 1
    with pytest.raises(ConfigError, match=r"only if the brokers have transaction.version=2, but it is 1"):
        Transactions(brokers, Writer(brokers, Format.of("none", 1_000)), "app", 60_000).take_over()


def test_features_are_asked_for_again_until_a_broker_answers(brokers: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connected(_: Brokers) -> Any:
        return SimpleNamespace(get_random_node=lambda: 1)

    monkeypatch.setattr(Brokers, "connected", connected)
    brokers.answers = [NoAnswerError("lost"), SimpleNamespace(tags={})]
    assert brokers.run(Brokers.levels(brokers)) == {}
    brokers.answers = [NoAnswerError("lost")]
    with pytest.raises(BrokerError, match="No broker tells its features: lost"):
        brokers.run(Brokers.levels(brokers))


def test_a_take_over_that_is_refused_raises(brokers: Scripted) -> None:
    brokers.answers = [coded(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)]
    with pytest.raises(ConfigError, match="Cannot take over"):
        Transactions(brokers, Writer(brokers, Format.of("none", 1_000)), "app", 60_000).take_over()
