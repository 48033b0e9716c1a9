"""The numbers by which Spark partitions lanes; `tests/jvm/cluster` shows that their tasks run where they should."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import ConfigError, StateError
from penstock.lane_servers.protocol import Located
from penstock.spark import hosts as module
from penstock.spark.hosts import Hosts, _hash, labels


@pytest.mark.parametrize(
    ("number", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (3, -1823081949), (42, 29417773)]
)
def test_the_hash_of_a_number_is_that_of_spark(number: int, hashed: int) -> None:
    assert _hash(number) == hashed


@pytest.mark.parametrize("lanes", [1, 2, 7, 64])
def test_every_lane_has_a_number_of_its_own_partition(lanes: int) -> None:
    assert [_hash(label) % lanes for label in labels(lanes)] == list(range(lanes))


class Frame:
    """A frame of Spark, of which only the number of partitions matters."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    @property
    def _jdf(self) -> Any:
        return SimpleNamespace(
            queryExecution=lambda: SimpleNamespace(toRdd=lambda: SimpleNamespace(getNumPartitions=lambda: self._partitions))
        )


class Summaries:
    """What Spark says about executors, the driver included."""

    def __init__(self) -> None:
        self.executors: dict[str, tuple[str, int]] = {}

    def listed(self, is_active_only: bool) -> Any:
        found = [("driver", "driver:1", 0), *((name, f"{host}:7", cores) for name, (host, cores) in self.executors.items())]
        each = [
            SimpleNamespace(id=lambda n=name: n, hostPort=lambda h=at: h, totalCores=lambda c=cores: c)
            for name, at, cores in found
        ]
        return SimpleNamespace(size=lambda: len(each), apply=each.__getitem__)


@pytest.fixture
def cluster() -> Summaries:
    return Summaries()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


@pytest.fixture
def hosts(cluster: Summaries, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Hosts:
    spark = SimpleNamespace(statusStore=lambda: SimpleNamespace(executorList=cluster.listed))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: spark)), range=lambda lanes: None)
    monkeypatch.setattr(Hosts, "on_lanes", lambda self, frame, lane: Frame(self._lanes))
    monkeypatch.setattr(module, "functions", SimpleNamespace(col=lambda name: SimpleNamespace(cast=lambda kind: None)))
    monkeypatch.setattr(module, "_anchor", lambda session, labels, placement: SimpleNamespace(select=lambda name: placement))
    return Hosts(session, 4)


class TestPlacement:
    def test_lanes_are_placed_when_no_more_executors_register(
        self, hosts: Hosts, cluster: Summaries, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def sleep(seconds: float) -> None:
            clock[0] += seconds
            cluster.executors = {"1": ("b", 1)} if clock[0] < 1_001 else {"1": ("b", 1), "2": ("a", 1)}

        monkeypatch.setattr(f"{module.__name__}.time.sleep", sleep)
        hosts.place()
        assert hosts.placement == ("a", "a", "b", "b")
        each: Any = hosts.each_lane()
        assert each == hosts.placement

    def test_without_executors_it_gives_up_after_a_while(self, hosts: Hosts) -> None:
        with pytest.raises(ConfigError, match="started no executor within 120 s"):
            hosts.place()

    def test_lost_and_new_executors_are_noticed(self, hosts: Hosts, cluster: Summaries, clock: list[float]) -> None:
        cluster.executors = {"1": ("a", 2), "2": ("b", 2)}
        hosts.place()
        clock[0] += 1
        assert not hosts.have_changed()
        assert not hosts.are_lost()
        cluster.executors = {"1": ("a", 2), "3": ("b", 2)}  # another process on the same host
        assert not hosts.have_changed()  # looked at a moment ago
        clock[0] += 1
        assert hosts.have_changed()
        assert hosts.have_changed(), "until lanes are placed anew"
        assert not hosts.are_lost()
        cluster.executors = {"1": ("a", 2)}
        assert hosts.are_lost()
        hosts.place()
        assert not hosts.have_changed()
        assert hosts.placement == ("a",) * 4

    def test_lanes_that_move_are_copied_from_hosts_that_are_still_there(self, hosts: Hosts, cluster: Summaries) -> None:
        cluster.executors = {"1": ("a", 1), "2": ("b", 1)}
        hosts.place()
        assert hosts.peers() == {}
        hosts.servers = {lane: (host, 7) for lane, host in enumerate(hosts.placement)}
        cluster.executors["3"] = ("c", 2)
        hosts.place()
        assert hosts.placement == ("a", "c", "b", "c")
        assert hosts.peers() == {1: ("a", 7), 3: ("b", 7)}
        del cluster.executors["2"]
        hosts.place()
        assert hosts.peers() == {1: ("a", 7)}

    def test_they_are_located_by_their_servers(self, hosts: Hosts) -> None:
        hosts.servers = {lane: (f"host-{lane}", 7_000 + lane) for lane in reversed(range(4))}
        assert hosts.located(41) == Located(41, [(f"host-{lane}", 7_000 + lane) for lane in range(4)])

    def test_a_spark_that_does_not_combine_partitions_is_refused(
        self, hosts: Hosts, cluster: Summaries, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.executors = {"1": ("a", 2)}
        monkeypatch.setattr(Hosts, "on_lanes", lambda self, frame, lane: Frame(2 * self._lanes))
        with pytest.raises(StateError, match="does not keep lanes in partitions of their own"):
            hosts.place()
