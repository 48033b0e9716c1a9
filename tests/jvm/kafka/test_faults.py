"""A broker that hangs, dies or is unreachable, and a process that is killed during a commit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import Config
from penstock.errors import BrokerError, CommitError, FencedError
from penstock.kafka import publishers
from penstock.kafka.commit import Committer
from penstock.kafka.publishers import AtLeastOncePublisher, TransactionalPublisher
from tests.jvm.kafka.live_topics import at, config, hanging, new_topic, offset_of, publisher, rows, values, wait_until_settled
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import ROOT, free_port

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # clients wait for brokers that are gone


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """A broker that tests kill and pause; every test leaves it running."""
    with Broker() as running:
        topics.create(running.bootstrap_servers, "input", partitions=3)
        yield running


def test_a_commit_without_a_response_is_retried(own: Broker, application: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "SLICE_S", 1.0)
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        committer = Committer(target)
        committer.commit(0, [rows(b"0")], [at(1)])
        target.begin()
        target.produce(rows(b"1"))
        target.send_offsets([at(2)])
        with hanging(own):
            assert not target.commit()
            assert not target.commit()
        while not target.commit():
            pass
        first = target._producer.client
        committer.commit(2, [rows(b"2")], [at(3)])
        assert target._producer.client is not first, "a commit whose outcome was unknown is followed by a new producer"
        second = target._producer.client
        committer.commit(3, [rows(b"3")], [at(4)])
        assert target._producer.client is second
    assert values(servers, topic) == [b"0", b"1", b"2", b"3"]
    assert offset_of(servers, application) == (4, "m")


def test_after_an_unknown_outcome_it_is_fenced_if_another_instance_has_committed(
    own: Broker, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "SLICE_S", 0.5)
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        target.begin()
        target.produce(rows(b"0"))
        target.send_offsets([at(1)])
        with hanging(own):
            assert not target.commit()
        while not target.commit():
            pass
        with publisher(config(servers), application, topic) as other:
            Committer(other).commit(1, [rows(b"1")], [at(2)])
        with pytest.raises(FencedError, match="Another instance of the application has committed in the meantime"):
            Committer(target).commit(1, [rows(b"1")], [at(2)])
    assert values(servers, topic) == [b"0", b"1"]


def test_a_broker_may_die_before_the_commit_and_come_back(own: Broker, application: str) -> None:
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers), application, topic) as target:
        committer = Committer(target)
        committer.commit(0, [rows(b"0")], [at(1)])
        wait_until_settled(servers, topic, application)
        own.kill()
        back = threading.Timer(2, own.start)
        back.start()
        committer.commit(1, [rows(b"1")], [at(2)])
        back.join()
        committer.commit(2, [rows(b"2")], [at(3)])
        target.check()
    assert values(servers, topic) == [b"0", b"1", b"2"]
    assert offset_of(servers, application) == (3, "m")


def test_a_broker_may_hang_for_longer_than_the_transaction_timeout(own: Broker, application: str) -> None:
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers, transaction_timeout="2s"), application, topic) as target:
        committer = Committer(target)
        committer.commit(0, [rows(b"0")], [at(1)])
        own.pause()
        back = threading.Timer(6, own.resume)
        back.start()
        committer.commit(1, [rows(b"1"), rows(b"2")], [at(2)])
        back.join()
    assert values(servers, topic) == [b"0", b"1", b"2"]
    assert offset_of(servers, application) == (2, "m")


def test_a_broker_that_hangs_for_too_long_ends_the_application(
    own: Broker, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "SLICE_S", 1.0)
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers, transaction_timeout="2s", broker_timeout="5s"), application, topic) as target:
        committer = Committer(target)
        committer.commit(0, [rows(b"0")], [at(1)])
        with hanging(own), pytest.raises(BrokerError):
            committer.commit(1, [rows(b"1")], [at(2)])
    assert values(servers, topic) == [b"0"]


def test_an_unknown_outcome_of_the_first_commit_is_an_error(own: Broker, application: str) -> None:
    servers = own.bootstrap_servers
    target = TransactionalPublisher(config(servers, transaction_timeout="2s"), application, application, [])
    target.start()
    with hanging(own), pytest.raises(CommitError, match=r"before the first commit\. Start again"):
        Committer(target).commit(0, [], [at(1)])
    assert offset_of(servers, application) is None


def test_an_idle_application_ends_when_brokers_are_unreachable_for_too_long(own: Broker, application: str) -> None:
    settings = config(own.bootstrap_servers, broker_timeout="3s")
    exactly_once = TransactionalPublisher(settings, application, application, [])
    exactly_once.start()
    at_least_once = AtLeastOncePublisher(settings, f"{application}-2", [])
    Committer(exactly_once).commit(0, [], [at(1)])
    Committer(at_least_once).commit(0, [], [at(1)])
    exactly_once.check()
    own.kill()
    try:
        for target in (exactly_once, at_least_once):
            began = time.monotonic()
            with pytest.raises(BrokerError, match="No broker has been reachable for"):
                check_for(target, 20)
            assert time.monotonic() - began < 15
    finally:
        own.start()


def check_for(target: TransactionalPublisher | AtLeastOncePublisher, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        target.check()
        time.sleep(0.1)


def test_an_idle_application_continues_when_the_brokers_come_back(own: Broker, application: str) -> None:
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    with publisher(config(servers, broker_timeout="60s"), application, topic) as target:
        Committer(target).commit(0, [rows(b"0")], [at(1)])
        wait_until_settled(servers, topic, application)
        own.kill()
        check_for(target, 2)
        own.start()
        check_for(target, 3)
        assert target._producer._out_of_reach_since is None
        Committer(target).commit(1, [rows(b"1")], [at(2)])
    assert values(servers, topic) == [b"0", b"1"]


def test_a_start_without_brokers_ends_after_the_timeout(application: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "SLICE_S", 0.5)
    settings = Config.load(environment={}, bootstrap_servers=f"127.0.0.1:{free_port()}", broker_timeout="2s")
    began = time.monotonic()
    with pytest.raises(BrokerError, match="Cannot initialise transactions"):
        TransactionalPublisher(settings, application, application, []).start()
    assert 2 <= time.monotonic() - began < 10


def test_at_least_once_waits_for_a_broker_that_hangs(own: Broker, application: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "SLICE_S", 0.5)
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    target = AtLeastOncePublisher(config(servers, guarantee="at_least_once"), application, [topic])
    Committer(target).commit(0, [rows(b"0")], [at(1)])
    target.begin()
    target.produce(rows(b"1"))
    target.send_offsets([at(2)])
    with hanging(own):
        assert not target.commit()
    while not target.commit():
        pass
    target.close()
    assert values(servers, topic) == [b"0", b"1"]
    assert offset_of(servers, application) == (2, "m")


VICTIM = """
import sys
from penstock.kafka.commit import Committer, SourceOffset
from penstock.kafka.publishers import TransactionalPublisher
from tests.jvm.kafka.live_topics import config, rows
servers, application, topic = sys.argv[1:]
target = TransactionalPublisher(config(servers), application, application, [topic])
target.start()
committer = Committer(target)
for epoch in range(5):
    committer.commit(epoch, [rows(b"%d-a" % epoch), rows(b"%d-b" % epoch)], [SourceOffset("input", 0, epoch + 1, str(epoch))])
"""

GIVING_UP = """
import sys
from penstock.kafka.commit import Committer, SourceOffset
from penstock.errors import PenstockError
from penstock.kafka.publishers import TransactionalPublisher
from tests.jvm.kafka.live_topics import config, rows
servers, application, topic = sys.argv[1:]
target = TransactionalPublisher(
    config(servers, transaction_timeout="2s", broker_timeout="4s"), application, application, [topic]
)
target.start()
committer = Committer(target)
committer.commit(0, [rows(b"0")], [SourceOffset("input", 0, 1, "m")])
print("ready", flush=True)
sys.stdin.readline()
try:
    committer.commit(1, [rows(b"1")], [SourceOffset("input", 0, 2, "m")])
except PenstockError as error:
    sys.exit(error.exit_code)
"""


def test_a_process_that_gives_up_ends_with_its_own_exit_code(own: Broker, application: str) -> None:
    servers = own.bootstrap_servers
    topic = new_topic(servers)
    process = subprocess.Popen(
        [sys.executable, "-c", GIVING_UP, servers, application, topic],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with hanging(own):
        process.communicate("go on\n", timeout=60)
    assert process.returncode == BrokerError.exit_code
    assert values(servers, topic) == [b"0"]


KILLED_AT = {
    "kafka.before_init:1": 0,
    "kafka.after_init:1": 0,
    "committer.before_begin:3": 2,
    "committer.after_begin:3": 2,
    "committer.mid_produce:5": 2,
    "committer.after_produce:3": 2,
    "committer.after_offsets:3": 2,
    "committer.before_commit:3": 2,
    "committer.after_commit:3": 3,
}


@pytest.mark.parametrize(("point", "epochs"), KILLED_AT.items())
def test_a_killed_process_leaves_whole_epochs(servers: str, application: str, point: str, epochs: int, tmp_path: Path) -> None:
    topic = new_topic(servers)
    faults = {"PENSTOCK_FAULT": f"{point}:kill", "PENSTOCK_FAULT_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", VICTIM, servers, application, topic]
    died = subprocess.run(
        command, env={**os.environ, **faults}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert died.returncode == -9, died.stderr
    assert (tmp_path / "fired").read_text().startswith(point.partition(":")[0])
    with publisher(config(servers), application, topic) as successor:
        assert offset_of(servers, application) == ((epochs, str(epochs - 1)) if epochs else None)
        Committer(successor).commit(9, [rows(b"9")], [at(9)])
    assert values(servers, topic) == [b"%d-%s" % (epoch, half) for epoch in range(epochs) for half in (b"a", b"b")] + [b"9"]
