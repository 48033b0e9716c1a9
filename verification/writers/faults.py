"""What is done to an application whose epochs several processes write."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.errors import FencedError, PenstockError
from verification.harness.broker import Broker, Cluster
from verification.harness.processes import HarnessError
from verification.writers.application import Application

WRITERS, PARTITIONS = 3, 9


class Outcome(NamedTuple):
    """The result of a fault: how often it was seen to happen, and what readers saw that they should not have."""

    fired: int
    differences: list[str]


def killed_writers(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Kill a writer while it writes: the epoch is aborted, and runs again."""
    for _ in range(times):
        application.step()
        application.begin()
        time.sleep(chooser.uniform(0, 0.01))
        application.replace(victim := chooser.randrange(WRITERS))
        for number, writer in enumerate(application.writers):
            if number != victim:
                writer.answer()
        application.step()
    return times


def late_writers(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Suspend a writer, run its epoch again with another one, and let it continue: everything that it sends is refused."""
    refused = 0
    for _ in range(times):
        application.step()
        late = application.writers[victim := chooser.randrange(WRITERS)]
        late.pause()
        application.begin()
        for number, writer in enumerate(application.writers):
            if number != victim:
                writer.answer()
        application.writers[victim] = application.another_writer()
        application.step()
        late.resume()
        answer = late.answer()
        refused += answer is None or bool(answer.error)
        late.kill()
        application.step()
    return refused


def lost_answers(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Lose the answer to a commit or an abort: it is asked for again."""
    for number in range(times):
        _, values = application.begin()
        answers = application.answers()
        application.driver_brokers.lose_answer_of_end()
        if number % 2:
            application.driver.abort()
        else:
            application.commit(answers, values)
        application.step()
    return application.driver_brokers.lost


def new_drivers(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Start another driver in the middle of an epoch: the old one cannot commit it."""
    fenced = 0
    for _ in range(times):
        application.step()
        _, values = application.begin()
        answers = application.answers()
        old, successor = application.driver, application.new_driver()
        try:
            application.commit(answers, values)
        except FencedError:
            fenced += 1
        old.close()
        application.driver = successor
        application.step()
    return fenced


def failovers(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Kill the broker that coordinates the transactions, in the middle of an epoch."""
    killed = 0
    for _ in range(times):
        application.step()
        coordinator = _coordinator(application, brokers)
        _, values = application.begin()
        time.sleep(chooser.uniform(0, 0.02))
        coordinator.kill()
        killed += 1
        try:
            application.commit(application.answers(), values)
        except PenstockError as error:
            print(f"the epoch runs again: {error}")
            application.step()
        coordinator.start()
    return killed


_LAST_EPOCH = 2**15 - 1
_LEFT = 500
"""How many producer epochs are used up by transactions."""


def overflown_epochs(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """Use up the epochs of a producer id: the brokers give another id when a transaction ends."""
    for _ in range(times):
        application.step()
        transactions = application.driver.transactions
        before = transactions.begin().identity
        transactions.abort()
        for _ in range(_LAST_EPOCH - _LEFT - before.producer_epoch):
            transactions.take_over()  # raises the epoch, too, in a tenth of the time
        if transactions.begin().identity.producer_id != before.producer_id:
            raise HarnessError("the epochs were used up before a transaction could do that")
        while transactions.begin().identity.producer_id == before.producer_id:
            pass
        application.step()
    return times


def repeated_writes(application: Application, chooser: random.Random, times: int, brokers: Cluster) -> int:
    """With the guard off: a writer that was killed is replaced within the same transaction. Readers miss rows, or see both."""
    for _ in range(times):
        application.step()
        shared, _ = application.begin()
        application.answers()
        values = application.write_again(shared)
        application.commit(application.answers(), values)
    return times


FAULTS: Mapping[str, Callable[[Application, random.Random, int, Cluster], int]] = {
    "killed-writers": killed_writers,
    "late-writers": late_writers,
    "lost-answers": lost_answers,
    "new-drivers": new_drivers,
    "failovers": failovers,
    "overflown-epochs": overflown_epochs,
}
GUARDS_OFF = {"repeated-writes": repeated_writes}


def run(name: str, times: int, seed: int, brokers: Cluster) -> Outcome:
    """Do something to an application `times` times, and compare."""
    fault = {**FAULTS, **GUARDS_OFF}[name]
    with Application(brokers.bootstrap_servers, f"{name}-{seed}", WRITERS, PARTITIONS) as application:
        fired = fault(application, random.Random(seed), times, brokers)
        return Outcome(fired, application.differences())


def _coordinator(application: Application, brokers: Cluster) -> Broker:
    """Return the broker that coordinates the application's transactions."""
    number = application.coordinator()
    found = [broker for broker in brokers.brokers if broker.node_id == number]
    if not found:
        raise HarnessError(f"there is no broker {number}")
    return found[0]
