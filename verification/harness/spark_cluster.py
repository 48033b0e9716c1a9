"""A standalone Spark cluster on one machine: a master, and hosts with addresses of their own, 127.0.0.11 and up.

Each host is a worker with one executor and its own state directory, which no other host sees. A test may kill, pause, add and
remove hosts, and kill executors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pyspark

from penstock.spark.encryption import secured
from verification.harness.processes import ROOT, HarnessError, free_port, wait_until
from verification.harness.server import Server, Started

MASTER_ADDRESS = "127.0.0.1"
SHARED = "known-to-all-processes-of-the-tests"
"""The secret of the cluster, which guards nothing."""
START_TIMEOUT_S = 60
_SPARK = Path(pyspark.__file__).parent
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For processes that do little, and must start quickly."""


class SparkServer(Server):
    """A process of the cluster."""

    def __init__(self, title: str, prefix: str, address: str) -> None:
        super().__init__(title, prefix)
        self.address = address
        (self._directory / "hosts").write_text(_hosts_file(), encoding="utf-8")

    @property
    def java_options(self) -> str:
        """The options of its JVMs: without a file of hosts, each look-up of a loopback address takes seconds."""
        return f"-Djdk.net.hosts.file={self._directory / 'hosts'}"

    def _run_class(self, name: str, arguments: Iterable[str], **environment: str) -> None:
        own_secret = {**secured({}), "spark.authenticate.secret": SHARED}
        security = " ".join(f"-D{name}={value}" for name, value in own_secret.items())
        own = {
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_MASTER_OPTS": security,
            "SPARK_WORKER_OPTS": security,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{self.java_options} {_JVM}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        with (self._directory / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), name, *arguments],
                env={**os.environ, **own, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def log(self) -> str:
        """What it has written."""
        return (self._directory / "output.log").read_text(errors="replace")


class Master(SparkServer):
    """The master of a cluster."""

    def __init__(self) -> None:
        super().__init__("Spark's master", "spark-master-", MASTER_ADDRESS)
        self.port = free_port()
        self._ui_port = free_port()

    @property
    def url(self) -> str:
        """The address for applications."""
        return f"spark://{MASTER_ADDRESS}:{self.port}"

    def start(self) -> None:
        """Start it."""
        places = ["--host", MASTER_ADDRESS, "--port", str(self.port), "--webui-port", str(self._ui_port)]
        self._run_class("org.apache.spark.deploy.master.Master", places)
        wait_until("Spark's master is up", self._is_up, START_TIMEOUT_S)

    def _is_up(self) -> bool:
        self._check_it_starts()
        return "I have been elected leader" in self.log()


class Host(SparkServer):
    """A host of a cluster: a worker, and its executor if an application runs. All its processes are one session."""

    def __init__(self, number: int, master: Master, cores: int, memory: str) -> None:
        super().__init__(f"host {number}", f"spark-host-{number}-", f"127.0.0.1{number}")
        self._master = master
        self._cores = cores
        self._memory = memory
        self._ui_port = free_port()

    @property
    def state_dir(self) -> Path:
        """The directory of stores on this host."""
        return self._directory / "state"

    def has_lanes(self) -> bool:
        """Whether there are stores of lanes."""
        return any(self.state_dir.glob("*/lanes-*/[0-9]*"))

    def start(self) -> None:
        """Start the worker; what the host had stored before is still there."""
        if self._process is not None:
            raise HarnessError(f"{self._title} is already running")
        (self._directory / "output.log").unlink(missing_ok=True)
        arguments = [
            *("--cores", str(self._cores), "--memory", self._memory, "--host", self.address),
            *("--work-dir", str(self._directory / "work"), "--webui-port", str(self._ui_port), self._master.url),
        ]
        self._run_class("org.apache.spark.deploy.worker.Worker", arguments, PENSTOCK_STATE_DIR=str(self.state_dir))
        wait_until(f"{self._title} has registered", self._is_up, START_TIMEOUT_S)

    def kill(self) -> None:
        """Kill all processes of the host."""
        self._signal_all(signal.SIGKILL)
        self._running().wait()
        self._process = None

    def pause(self) -> None:
        """Suspend all processes of the host."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue all processes of the host."""
        self._signal_all(signal.SIGCONT)

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors on this host."""
        return [process for process in self._processes() if _EXECUTOR in _command(process)]

    def kill_executor(self) -> bool:
        """Kill the executor with its Python workers; the worker starts another one. False if there is none."""
        executors = self.executors()
        for executor in executors:
            for process in [executor, *executor.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        return bool(executors)

    def _processes(self) -> list[psutil.Process]:
        session = self._running().pid
        return [process for process in psutil.process_iter() if _session_of(process.pid) == session]

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _is_up(self) -> bool:
        self._check_it_starts()
        return "Successfully registered with master" in self.log()


class SparkCluster(Started):
    """A cluster with hosts 1, 2, … that start with it; further ones can be added.

    An application has a slot for each of its lanes, and leaves a core for other jobs, if the hosts have so many `cores` each.

    Example:
        >>> with SparkCluster(hosts=3) as cluster:  # doctest: +SKIP
        ...     app.run(spark=cluster.settings, lanes=6)
    """

    def __init__(self, hosts: int = 3, *, cores: int = 3, memory: str = "1g") -> None:
        self.master = Master()
        self._cores, self._memory = cores, memory
        self.hosts: dict[int, Host] = {number: self._host(number) for number in range(1, hosts + 1)}

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings of an application on this cluster."""
        options = f"{self.master.java_options} {_JVM}"
        archive = os.environ.get("SPARK_SUBMIT_OPTS", "")  # of the driver's classes, which executors need, too
        return {
            "master": self.master.url,
            "spark.authenticate.secret": SHARED,
            "spark.driver.host": MASTER_ADDRESS,
            "spark.driver.bindAddress": MASTER_ADDRESS,
            "spark.driver.extraJavaOptions": options,
            "spark.executor.extraJavaOptions": f"{options} {archive}",
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": "600m",
            "spark.pyspark.python": sys.executable,
        }

    def start(self) -> None:
        """Start the master and all hosts."""
        self.master.start()
        for host in self.hosts.values():
            host.start()

    def add(self) -> Host:
        """Add a host, and start it."""
        number = max(self.hosts) + 1
        host = self.hosts[number] = self._host(number)
        host.start()
        return host

    def forget(self, host: Host) -> None:
        """Remove a host with all its files; its number is given again."""
        host.close()
        self.hosts = {number: one for number, one in self.hosts.items() if one is not host}

    def close(self) -> None:
        """End all processes."""
        for host in self.hosts.values():
            host.close()
        self.master.close()

    def _host(self, number: int) -> Host:
        return Host(number, self.master, self._cores, self._memory)


def _hosts_file() -> str:
    names = [f"127.0.0.1{number} 127.0.0.1{number}" for number in range(1, 10)]
    return "\n".join([f"127.0.0.1 127.0.0.1 localhost {socket.gethostname()}", *names, ""])


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
