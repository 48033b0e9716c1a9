"""A Kafka broker for `penstock dev`: one process on loopback, whose data is gone when it stops. Nothing is downloaded."""

from __future__ import annotations

import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.errors import BrokerError, ConfigError
from penstock.spark.java import OLDEST, require_java

if TYPE_CHECKING:
    from typing_extensions import Self

HOW_TO_GET_KAFKA = f"""\
dev: no broker. Either use one that runs, with --bootstrap-servers HOST:PORT, or let dev start one:
  1. Download the binary release of Apache Kafka 4 from https://kafka.apache.org/downloads and check its checksum.
  2. Unpack it: tar xzf kafka_2.13-VERSION.tgz
  3. Give its directory with --kafka DIRECTORY, or as KAFKA_HOME. It needs Java {OLDEST} or later."""

_LOOPBACK = "127.0.0.1"
_JARS = "kafka_2.*.jar"
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_S, _STOP_S, _LOOK_EVERY_S = 60.0, 15.0, 0.1
_SHOWN = 2_000
_ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # sample data may be old
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}


def find_jars(kafka: Path | None) -> Path:
    """Return the directory of Kafka's jars: `libs` of an unpacked release, or the given directory itself."""
    if kafka is None:
        raise ConfigError(HOW_TO_GET_KAFKA)
    for directory in (kafka / "libs", kafka):
        if any(directory.glob(_JARS)):
            return directory.absolute()
    where = f"neither {str(kafka)!r} nor its directory libs has a file {_JARS}"
    raise ConfigError(f"dev: there is no Kafka in --kafka (KAFKA_HOME): {where}.\n{HOW_TO_GET_KAFKA}")


class LocalBroker:
    """A broker that is controller, too. As a context manager, it is started on entry and stopped on exit."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._jars = jars
        self._directory = directory
        self._java = require_java("A local broker", "or use another broker, with --bootstrap-servers")
        self._port, self._controller_port = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        return f"{_LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> None:
        """Format its storage, start it, and wait until it accepts connections."""
        properties = self._directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings().items()), encoding="utf-8")
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatting = ("kafka.tools.StorageTool", "format", f"--cluster-id={identity}", f"--config={properties}")
        if self._run(*formatting).wait() != 0:
            raise self._failed("cannot format its storage")
        self._process = self._run("kafka.Kafka", str(properties))
        deadline = time.monotonic() + _START_S
        while not self._is_listening():
            if self._process.poll() is not None:
                raise self._failed(f"ended with exit code {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failed(f"did not start in {_START_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)

    def stop(self) -> None:
        """Stop it, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            end_process(process, _STOP_S)

    def settings(self) -> dict[str, str]:
        """Its settings."""
        listeners = f"CLIENTS://{self.bootstrap_servers},CONTROLLER://{_LOOPBACK}:{self._controller_port}"
        return {
            **_ALONE,
            "controller.quorum.voters": f"1@{_LOOPBACK}:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"CLIENTS://{self.bootstrap_servers}",
            "log.dirs": str(self._directory / "data"),
        }

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [self._java, *_OPTIONS, "-cp", f"{self._jars}/*", *arguments]
        with self._log.open("ab") as log:  # in a session of its own: Ctrl-C must end the application first, which still commits
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((_LOOPBACK, self._port)) == 0

    def _failed(self, what: str) -> BrokerError:
        written = self._log.read_text(encoding="utf-8", errors="replace").strip()[-_SHOWN:]
        return BrokerError(f"The local broker {what}. It wrote:\n{written or 'nothing'}")

    @property
    def _log(self) -> Path:
        return self._directory / "broker.log"


def end_process(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Let a process end by itself; kill it if that takes too long, or if this one is interrupted meanwhile."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]
