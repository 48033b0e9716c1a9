"""A real Kafka in KRaft mode: one broker, or a cluster, that a test may stop, kill, pause and start again.

Every node is controller and broker at once, listens on loopback only, and keeps its ports and its data from one start to
the next until it is closed.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from verification.harness.processes import HarnessError, free_port, java, run_java, wait_until
from verification.harness.server import Server, Started

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30

QUICK_FOR_TESTS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",  # a killed broker's registration lasts this long
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.retention.ms": "-1",  # tests write old records
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "4",
}

NEVER_KILLED = {"broker.session.timeout.ms": "30000"}
"""For a broker that nobody kills: with a shorter session, a busy machine may fence it, and then nothing has a leader."""


class Broker(Server):
    """One node, on a free port, or on `port`.

    With `proxied_port` it has a second listener that advertises that port, where a proxy must listen and
    forward everything to `upstream`. Clients that connect there stay behind the proxy, because metadata repeats the port.

    Example:
        >>> with Broker() as broker:  # doctest: +SKIP
        ...     topics.create(broker.bootstrap_servers, "orders", partitions=4)
    """

    _proxied_protocol = "PLAINTEXT"

    def __init__(
        self,
        *,
        port: int | None = None,
        proxied_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        heap: str = "512m",
    ) -> None:
        super().__init__(f"broker {node_id}", f"kafka-{node_id}-")
        self.node_id = node_id
        self.port = free_port() if port is None else port
        self.controller_port = free_port()
        self.proxied_port = proxied_port
        self._upstream_port = free_port()
        self._settings = dict(settings or {})
        self._heap = heap
        self._voters = self.voter
        self._cluster_id = _new_cluster_id()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the direct listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def proxied_bootstrap_servers(self) -> str:
        """The address of the proxy."""
        return f"127.0.0.1:{self.proxied_port}"

    @property
    def upstream(self) -> str:
        """The address to which the proxy forwards."""
        return f"127.0.0.1:{self._upstream_port}"

    @property
    def voter(self) -> str:
        """This node as an entry of `controller.quorum.voters`."""
        return f"{self.node_id}@127.0.0.1:{self.controller_port}"

    def join(self, cluster_id: str, voters: str) -> None:
        """Make it a node of a cluster; only before the first start."""
        self._cluster_id, self._voters = cluster_id, voters

    def start(self) -> None:
        """Start it with its existing data, and wait until it responds."""
        self.launch()
        self.wait_until_it_answers()

    def launch(self) -> None:
        """Start the process without waiting: the nodes of a cluster need each other to respond."""
        properties = self._write_properties()
        if not (self._directory / "data" / "meta.properties").exists():
            format_storage = ("format", f"--cluster-id={self._cluster_id}", "--config", str(properties), *self._format_options())
            run_java("kafka.tools.StorageTool", *format_storage)
        options = [f"-Xmx{self._heap}", f"-Xms{self._heap}", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
        self._run(java("kafka.Kafka", str(properties), options=options))

    def wait_until_it_answers(self) -> None:
        """Wait until it lists itself as a broker of the cluster."""
        # Quiet: it is expected to refuse connections for a while.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 200})

        def answers() -> bool:
            self._check_it_starts()
            with contextlib.suppress(KafkaException):
                return self.node_id in admin.list_topics(timeout=1).brokers
            return False

        wait_until(f"broker {self.node_id} at {self.bootstrap_servers} answers", answers, START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop it gracefully (SIGTERM)."""
        process = self._running()
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(f"broker {self.node_id} did not stop in {STOP_TIMEOUT_S} s") from None
        self._process = None

    def restart(self) -> None:
        """Stop it gracefully and start it again, on the same ports and with its data."""
        self.stop()
        self.start()

    def _format_options(self) -> list[str]:
        """Further options for formatting its storage."""
        return []

    def _write_properties(self) -> Path:
        listeners = {"DIRECT": f"127.0.0.1:{self.port}", "CONTROLLER": f"127.0.0.1:{self.controller_port}"}
        advertised = {"DIRECT": self.bootstrap_servers}
        protocols = {"DIRECT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "PROXIED": self._proxied_protocol}
        if self.proxied_port is not None:
            listeners["PROXIED"] = self.upstream
            advertised["PROXIED"] = self.proxied_bootstrap_servers
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": self._voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "DIRECT",
            "listeners": _listeners(listeners),
            "advertised.listeners": _listeners(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in listeners),
            "log.dirs": str(self._directory / "data"),
            **replication(1),
            **QUICK_FOR_TESTS,
            **self._settings,
        }
        path = self._directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


class Cluster(Started):
    """Some brokers that replicate everything to each other and need a majority; as a context manager like `Broker`."""

    def __init__(self, brokers: int = 3, *, settings: Mapping[str, str] | None = None) -> None:
        replicated = {**replication(brokers), **(settings or {})}
        self.brokers = tuple(Broker(node_id=number, settings=replicated, heap="384m") for number in range(1, brokers + 1))
        cluster_id = _new_cluster_id()
        for broker in self.brokers:
            broker.join(cluster_id, ",".join(voter.voter for voter in self.brokers))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self) -> None:
        """Start all brokers with their existing data, and wait until each responds."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_until_it_answers()

    def close(self) -> None:
        """Kill those that are running, and remove their data."""
        for broker in self.brokers:
            broker.close()


def replication(brokers: int) -> dict[str, str]:
    """The settings with which each of this many brokers has a replica of everything, and a write needs a majority."""
    factor, min_isr = str(brokers), str(brokers // 2 + 1)
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
    }


def _listeners(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())


def _new_cluster_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
