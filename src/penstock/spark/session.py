"""The Spark session of an application, with the settings that an epoch of a tenth of a second needs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.settings import is_local, is_secret, revealed
from penstock.spark.jars import connector_jars
from penstock.spark.java import require_java_of_spark
from penstock.workers.output import LineReader

LOOPBACK = "127.0.0.1"
REDACTED = (
    "(?i)passw|passphrase|secret|token|credential|jaas|private[.]?key|key[.]pem|keystore[.]key|basic[.]auth|user[.]info"
    "|access[.]?key|oauthbearer[.]config|assertion|://[^/@ ]+:[^/@ ]+@"
)
"""Names and values that Spark hides when it shows settings: those that `penstock.config` hides, as a Java pattern."""

ANY_BYTES = 2**31 - 1
"""No limit on an Arrow batch. With a limit, Spark measures the whole batch for every row, which took most of an epoch's time."""

_LOG = Path(__file__).parent / "log4j2.properties"

__all__ = ["LOOPBACK", "DataFrame", "SparkSession", "has_session", "open_session"]


def has_session() -> bool:
    """Whether this process already has a session, which is then used and left open."""
    return SparkContext._active_spark_context is not None  # an "active session" belongs to a thread


def open_session(
    application_id: str,
    lanes: int,
    settings: Mapping[str, str],
    oauth_endpoints: Sequence[str] = (),
    heard: Callable[[str], None] | None = None,
) -> SparkSession:
    """Open the session of the application; the user's `settings` override ours, except where both are combined.

    `oauth_endpoints` are the addresses from which the Java client may request tokens. `heard` is called with every line that the
    JVM, if it is started here, and its Python workers write to standard error.
    """
    master = settings.get("master", f"local[{lanes}]")
    if is_local(settings):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Workers must find the user's modules as this process does, including those next to the script.
        os.environ["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # the address of the UI, if it is enabled
    else:
        os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python", sys.executable)  # where executors have it
    combined = session_settings(lanes, settings, oauth_endpoints)
    logging.getLogger("py4j").setLevel(logging.INFO)  # at DEBUG it logs all calls to Java, with passwords
    conf = SparkConf().setAppName(application_id).setMaster(_with_retries(master)).setAll(list(combined.items()))
    try:
        if SparkContext._gateway is None:
            require_java_of_spark()
            _start_jvm(conf, {name: value for name, value in combined.items() if not is_secret(name, value)}, heard)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(f"Cannot start Spark: {error}. It needs Java 17 or later, on the path or in JAVA_HOME.") from error
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigError("The existing Spark session has spark.speculation enabled, which Penstock cannot use. Disable it.")
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_jvm(conf: SparkConf, shown: Mapping[str, str], heard: Callable[[str], None] | None) -> None:
    """Start the JVM; pass its standard error, which its workers share, to `heard` if given.

    Only the settings in `shown` are command-line arguments, because every user of the machine can list those.
    """
    arguments = SparkConf(loadDefaults=False).setAll(list(shown.items()))
    if heard is None:
        SparkContext._ensure_initialized(conf=arguments)
        return
    with LineReader(heard) as writing:
        gateway = launch_gateway(arguments, {"stderr": writing})  # type: ignore[no-untyped-call]  # pyspark types most, not this
    SparkContext(conf=conf, gateway=gateway)


def session_settings(lanes: int, settings: Mapping[str, str], oauth_endpoints: Sequence[str] = ()) -> dict[str, str]:
    """Return all settings of the session, with secrets in clear text: ours and the user's, combined where needed."""
    given = {name: value for name, value in revealed(settings).items() if name != "master"}
    if is_local(settings):
        combined = {**_settings(lanes), **_ON_ONE_MACHINE, **given}
    else:
        combined = {**_settings(lanes), **_ON_A_CLUSTER, **given, **_ALWAYS_ON_A_CLUSTER}
    combined["spark.jars"] = ",".join(filter(None, [*map(str, connector_jars()), given.get("spark.jars", "")]))
    # Kafka's client 3.9 sends credentials to any address unless the allowed ones are listed.
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(oauth_endpoints)}"
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        combined[name] = f"{combined.get(name, '')} {allowed}".strip()
    return combined


_ON_ONE_MACHINE = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
_ON_A_CLUSTER = {
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # A host that does not answer is given up after this time, and its lanes run elsewhere.
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "2s",
}
_ALWAYS_ON_A_CLUSTER = {
    # A task must run where its lane is. Lanes that have to move are moved by the driver, between jobs.
    "spark.locality.wait": "120s",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.sql.unionOutputPartitioning": "true",
    # A lane's task must not run twice in a job: what a first run has written or sent cannot be told from what a second one does.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}


def _with_retries(master: str) -> str:
    """Return a local master that retries tasks: `local[N]` fails with the first task, but a dead Python worker can be retried."""
    if master == "local":
        return "local[1,4]"
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},4]"
    return master


def _settings(lanes: int) -> dict[str, str]:
    return {
        "spark.eventLog.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(lanes),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ANY_BYTES),
        "spark.driver.maxResultSize": "0",  # max_epoch_bytes limits an epoch before that
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.redaction.regex": REDACTED,
        "spark.redaction.string.regex": '(?i)(password|secret)="(\\\\.|[^"])*"',
        "spark.sql.streaming.pollingDelay": "0",
        # A malformed text key is routed as String decodes it: with replacement characters, not an error.
        "spark.sql.legacy.codingErrorAction": "true",
        # The default file manager starts ten processes per file; the checkpoint is temporary here and may be lost.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        # Records that consumers have prefetched are kept as long as the next epoch may need them, not for five minutes.
        "spark.kafka.consumer.fetchedData.cache.timeout": "20s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    }
