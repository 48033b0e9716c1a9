"""The Spark of an application: a context for lanes, and a session for SQL and DataFrames once somebody asks for one."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession, is_remote

from penstock.engines.forked.forking import ALLOCATION
from penstock.errors import ConfigError
from penstock.settings import NO_CONNECT, check_lanes_fit, is_local, is_secret, revealed
from penstock.spark.encryption import check_secured, secured
from penstock.spark.java import require_java_of_spark
from penstock.spark.jvm import gateway_of, start_ahead

LOOPBACK = "127.0.0.1"
REDACTED = (
    "(?i)passw|passphrase|secret|token|credential|jaas|private[.]?key|key[.]pem|keystore[.]key|basic[.]auth|user[.]info"
    "|access[.]?key|oauthbearer[.]config|assertion|://[^/@ ]+:[^/@ ]+@"
)
"""Names and values that Spark hides when it shows settings: those that `penstock.config` hides, as a Java pattern."""

ANY_BYTES = 2**31 - 1
"""No limit on an Arrow batch. With a limit, Spark measures the whole batch for every row, which took most of an epoch's time."""

_log = logging.getLogger(__name__)

_LOG = Path(__file__).parent / "log4j2.properties"

SPARE = 2
"""Slots beside those of lanes, for SQL, tables and backfills. On one machine they are only a number: all share its cores."""

_FAILURES = 8
"""How often one task may be lost before its job fails. The lane job is then submitted again; a query ends with its error."""

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")

_CURE = "Change that in spark-defaults.conf, in the arguments of spark-submit, or where the session is opened."

__all__ = [
    "LOOPBACK",
    "DataFrame",
    "Spark",
    "SparkSession",
    "arguments_of",
    "has_context",
    "open_context",
    "start_jvm_ahead",
]


class Spark:
    """The Spark of an application for up to `lanes` slots: its own, opened in the background, or one that is open already.

    `heard` is called with every line that the JVM, if it is started here, and its Python workers write to standard error.
    """

    def __init__(
        self,
        application_id: str,
        lanes: int,
        settings: Mapping[str, str],
        heard: Callable[[str], None] | None = None,
        *,
        has_frames: bool = True,
    ) -> None:
        self._application_id = application_id
        self._has_frames = has_frames
        self._lanes = lanes
        self._settings = settings
        self._heard = heard
        self._lock = threading.RLock()
        self._opening: Future[SparkContext] | None = None
        self._session: SparkSession | None = None
        self._is_shared = False

    def open(self) -> Future[SparkContext]:
        """Open the context in the background, which takes seconds; raises at once if there is no Java."""
        with self._lock:
            if self._opening is None:
                _refuse_connect()
                self._is_shared = has_context()
                if SparkContext._gateway is None:
                    require_java_of_spark()
                executor = ThreadPoolExecutor(1, "penstock-spark")
                arguments = (self._application_id, self._lanes, self._settings, self._heard, self._has_frames)
                self._opening = executor.submit(open_context, *arguments)
                executor.shutdown(wait=False)
            return self._opening

    @property
    def is_open(self) -> bool:
        """Whether the context is open."""
        return self._opening is not None and self._opening.done() and self._opening.exception() is None

    @property
    def is_shared(self) -> bool:
        """Whether somebody else has opened the context, which then lives on."""
        return self._is_shared

    def slots(self, lanes: int) -> int:
        """Return how many slots so many lanes get on this machine; a context that somebody else has opened may have fewer."""
        return slots_of(lanes, self._settings, self.open().result() if self._is_shared else None)

    @property
    def session(self) -> SparkSession:
        """The session, for SQL and DataFrames; waits until the context is open."""
        context = self.open().result()
        with self._lock:
            if self._session is None:
                self._session = SparkSession(context)
            return self._session

    def close(self) -> None:
        """Stop the context, as soon as it is open, unless it is somebody else's."""
        with self._lock:
            if self._opening is not None and not self._is_shared:
                self._opening.add_done_callback(_stop)


def _stop(opened: Future[SparkContext]) -> None:
    if opened.exception() is None:
        opened.result().stop()


def has_context() -> bool:
    """Whether this process already has a context."""
    return SparkContext._active_spark_context is not None


def slots_of(lanes: int, settings: Mapping[str, str], context: SparkContext | None = None) -> int:
    """Return the number of slots on this machine: one per core at most, or as many as a local master names.

    A context that somebody else has opened keeps a slot for other jobs.

    Example:
        >>> slots_of(8, {"master": "local[3]"})
        3
    """
    if context is not None:
        most = _cores_of(context) - (SPARE if context.getConf().contains(_OURS) else 1)
        if most < 1:
            raise ConfigError(
                "The existing Spark context has a single slot, which lanes would take from all other jobs. Open it with two or "
                'more, for example with master("local[2]").'
            )
        return min(lanes, most)
    named = _LOCAL.fullmatch(settings.get("master", "local[*]"))
    cores = "1" if named is None else named.group(1) or "1"
    return min(lanes, (os.cpu_count() or 1) if cores == "*" else int(cores))


def _cores_of(context: SparkContext) -> int:
    """Return how many tasks a context on this machine runs at once; spark.default.parallelism may say something else."""
    named = _LOCAL.fullmatch(context.master or "")
    cores = "*" if named is None else named.group(1) or "1"
    assert context._jvm is not None
    return int(context._jvm.java.lang.Runtime.getRuntime().availableProcessors()) if cores == "*" else int(cores)


def start_jvm_ahead(settings: Mapping[str, str], heard: Callable[[str], None], *, has_frames: bool) -> None:
    """Start the JVM of the first context that this process opens. Without Java, opening that raises."""
    if SparkContext._gateway is not None:
        return
    with suppress(ConfigError):
        _refuse_connect()
        require_java_of_spark()
        _set_environment(settings)
        start_ahead(arguments_of(settings, has_frames), heard)


def open_context(
    application_id: str,
    lanes: int,
    settings: Mapping[str, str],
    heard: Callable[[str], None] | None = None,
    has_frames: bool = True,
) -> SparkContext:
    """Open the context, or return the one that is open; the user's `settings` override ours.

    Without frames to read, the JVM only schedules, and is made to start quickly.
    """
    _refuse_connect()
    _set_environment(settings)
    combined = context_settings(lanes, settings, has_frames)
    logging.getLogger("py4j").setLevel(logging.INFO)  # at DEBUG it logs all calls to Java, with passwords
    master = f"local[{slots_of(lanes, settings) + SPARE},{_FAILURES}]" if is_local(settings) else settings["master"]
    conf = SparkConf().setAppName(application_id).setMaster(master).setAll(list(combined.items()))
    is_new = not has_context()
    try:
        if SparkContext._gateway is None:
            require_java_of_spark()
            _start_jvm(arguments_of(settings, has_frames), heard)
            _refuse_other_master("spark-submit", _submitted_master(), settings)
        context = SparkContext.getOrCreate(conf)
    except PySparkRuntimeError as error:
        raise ConfigError(f"Cannot start Spark: {error}. It needs Java 17 or later, on the path or in JAVA_HOME.") from error
    _refuse_other_master("The existing Spark context", context.master, settings)
    try:  # spark-defaults.conf and spark-submit have a say, too
        check_lanes_fit("The Spark context", context.getConf().get, _CURE)
        if not is_local(settings):
            check_secured("The Spark context", context.getConf().get, revealed(settings), _CURE)
    except ConfigError:
        if is_new:
            context.stop()
        raise
    if not is_new:
        _note_differences(context.getConf().get, settings)
    context.setLogLevel("ERROR")
    return context


def _refuse_connect() -> None:
    """Raise if this process is a client of Spark Connect, as in a notebook of a platform."""
    if is_remote() or "SPARK_REMOTE" in os.environ:
        cure = (
            "Start the application in a process of its own: a job of the platform, spark-submit or python, without SPARK_REMOTE."
        )
        raise ConfigError(f"{NO_CONNECT} {cure}")


def _note_differences(setting: Callable[[str, str], str], settings: Mapping[str, str]) -> None:
    """Name the settings that a context does not have because somebody else has opened it."""
    wanted = {**({} if is_local(settings) else _ON_A_CLUSTER), **revealed(settings)}
    others = {name: (setting(name, ""), value) for name, value in wanted.items() if name != "master"}
    different = [
        name if is_secret(name, value) or is_secret(name, found) else f"{name} is {found or 'not set'}, not {value}"
        for name, (found, value) in sorted(others.items())
        if found != value
    ]
    if different:
        _log.warning("the Spark context was open already, and keeps its settings: %s", "; ".join(different))


def _set_environment(settings: Mapping[str, str]) -> None:
    """Set what the JVM and its workers take from the environment."""
    if is_local(settings):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Workers must find the user's modules as this process does, including those next to the script.
        os.environ["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # the address of the UI, if it is enabled
    else:
        os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)  # where executors have it


def _start_jvm(arguments: Mapping[str, str], heard: Callable[[str], None] | None) -> None:
    """Start the JVM, unless spark-submit has or it was started ahead; pass what it and its workers write to `heard` if given."""
    if heard is None:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(arguments.items())))
    else:
        SparkContext._ensure_initialized(gateway=gateway_of(arguments, heard))


def _submitted_master() -> str | None:
    """Return the master that spark-submit, which has then started this process, was given; None if it has not."""
    jvm = SparkContext._jvm
    if jvm is None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    found: str | None = jvm.java.lang.System.getProperty("spark.master")
    return found


def _refuse_other_master(who: str, master: str | None, settings: Mapping[str, str]) -> None:
    """Raise if Spark is on a cluster and the settings say that it is not, or the other way round: lanes need to know."""
    if master is not None and is_local({"master": master}) != is_local(settings):
        said = settings.get("master", "none, which is this machine")
        raise ConfigError(
            f"{who} has the master {master}, but the master of the application's settings is {said}. Set master to "
            f"{master!r} in the table spark of penstock.toml."
        )


def arguments_of(settings: Mapping[str, str], has_frames: bool) -> dict[str, str]:
    """Return the settings that the JVM gets on its command line: no secrets, because every user of the machine can list it."""
    own = context_settings(None, settings, has_frames)
    return {name: value for name, value in own.items() if not is_secret(name, value)}


def context_settings(lanes: int | None, settings: Mapping[str, str], has_frames: bool = True) -> dict[str, str]:
    """Return all settings of the context, with secrets in clear text: ours and the user's. `lanes` may not be known yet."""
    given = {name: value for name, value in revealed(settings).items() if name != "master"}
    options = "-XX:+UseParallelGC" if has_frames else "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    of_lanes = {} if lanes is None else {"spark.sql.shuffle.partitions": str(lanes)}
    ours = {**_SETTINGS, **of_lanes, "spark.driver.extraJavaOptions": options}
    return {**ours, **(_ON_ONE_MACHINE if is_local(settings) else {**_ON_A_CLUSTER, **secured(given)}), **given}


_OURS = "spark.penstock.context"
_ON_ONE_MACHINE = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
_ON_A_CLUSTER = {
    # A host that does not answer is given up after this time. Lanes run elsewhere long before.
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "2s",
    "spark.task.maxFailures": str(_FAILURES),
}

_SETTINGS = {
    _OURS: "true",
    "spark.scheduler.mode": "FAIR",  # a query does not wait for a backfill
    "spark.python.daemon.module": "penstock.spark.daemon",
    **{f"spark.executorEnv.{name}": value for name, value in ALLOCATION.items()},
    "spark.eventLog.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOG.as_uri()}",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ANY_BYTES),
    "spark.driver.maxResultSize": "0",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.redaction.regex": REDACTED,
    "spark.redaction.string.regex": '(?i)(password|secret)="(\\\\.|[^"])*"',
}
