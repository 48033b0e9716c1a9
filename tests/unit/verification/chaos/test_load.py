"""The load: payments by seed, and bad values that really are bad."""

from __future__ import annotations

import json
import random

import pytest

from penstock import dead_letter
from penstock.errors import ProcessingError
from penstock.testing import TopologyTestDriver
from verification.chaos import load
from verification.chaos.load import POISONS, Load
from verification.chaos.payments import Payment, Topics
from verification.chaos.topology import build

VALUE = Payment(4, "k1", 2, "g3", 17, 0, 9, 5_100).value()


def made(seed: int, count: int) -> list[Payment]:
    """Nothing is sent: no server listens on that port."""
    source = Load("127.0.0.1:1", "payments", 3, seed)
    payments = []
    for _ in range(count):
        payments.append(source._made())
        source.last_number = payments[-1].number
        source._steps[payments[-1].key] += 1
    return [payment._replace(timestamp=0) for payment in payments]


def test_a_seed_determines_everything_but_the_time() -> None:
    assert made(1, 50) == made(1, 50)
    assert made(1, 50) != made(2, 50)


def test_payments_are_unique_numbered_and_each_key_has_one_partition() -> None:
    payments = made(1, 400)
    assert [payment.number for payment in payments] == list(range(400))
    for key in {payment.key for payment in payments}:
        own = [payment for payment in payments if payment.key == key]
        assert [payment.step for payment in own] == list(range(len(own)))
        assert len({payment.partition for payment in own}) == 1
    assert {payment.partition for payment in payments} == {0, 1, 2}


def test_a_payment_as_it_is_written() -> None:
    assert json.loads(VALUE) == {"number": 4, "step": 2, "group": "g3", "amount": 17}
    assert Payment(4, "k1", 2, "g3", 17, 0, 9, 5_100).window == "k1@4000"


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: poison.__name__)
def test_poison_ends_the_application_or_is_one_dead_letter(poison: load.Poison) -> None:
    topics = Topics("chaos")
    bad = poison(random.Random(1), VALUE)
    with TopologyTestDriver(build(topics)) as driver, pytest.raises(ProcessingError):
        driver.pipe_raw(topics.input, b"k1", bad, 0, ())
    letter = dead_letter(topics.dead_letters)
    with TopologyTestDriver(build(topics), deserialization_errors=letter, processing_errors=letter) as driver:
        driver.pipe_raw(topics.input, b"k1", bad, 0, ())
        assert [(row.key, row.value) for row in driver._outputs[topics.dead_letters]] == [(b"k1", bad)]
        assert not any(driver._outputs[topic] for topic in topics.outputs if topic != topics.dead_letters)


def test_any_truncation_is_poison() -> None:
    for seed in range(200):
        with pytest.raises(json.JSONDecodeError):
            json.loads(load.truncated(random.Random(seed), VALUE))
