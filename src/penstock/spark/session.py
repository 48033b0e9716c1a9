"""The Spark session an application runs on, with the settings that an epoch of a tenth of a second needs."""

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

from penstock.config import is_secret, revealed
from penstock.errors import ConfigError
from penstock.spark.jars import connector_jars
from penstock.spark.output import LineReader

LOOPBACK = "127.0.0.1"
REDACTED = (
    "(?i)passw|passphrase|secret|token|credential|jaas|private[.]?key|key[.]pem|keystore[.]key|basic[.]auth|user[.]info"
    "|access[.]?key|oauthbearer[.]config|assertion|://[^/@ ]+:[^/@ ]+@"
)
"""Names and values that Spark hides wherever it shows settings; what `penstock.config` hides, in Java's words."""

ANY_BYTES = 2**31 - 1
"""No bound on an Arrow batch. Below it Spark measures the whole batch again for every row, which was most of an epoch's time."""

_LOG = Path(__file__).parent / "log4j2.properties"

__all__ = ["DataFrame", "SparkSession", "has_session", "open_session"]


def has_session() -> bool:
    """Whether this process has a session already, which is then used and left open."""
    return SparkContext._active_spark_context is not None  # an "active session" is a thread's own


def open_session(
    application_id: str,
    lanes: int,
    settings: Mapping[str, str],
    oauth_endpoints: Sequence[str] = (),
    heard: Callable[[str], None] | None = None,
) -> SparkSession:
    """A session of its own for the application; `settings` are the user's and win, where both can stand they do.

    `oauth_endpoints` are where the Java client may ask for tokens. `heard` is told every line that the JVM, if it is started
    here, and its Python workers write to standard error.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import the user's modules as this process does, also those beside the script that was started.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    master = settings.get("master", f"local[{lanes}]")
    if _is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # what the UI listens on, where somebody turns it on
    combined = session_settings(lanes, settings, oauth_endpoints)
    logging.getLogger("py4j").setLevel(logging.INFO)  # at DEBUG it writes down whatever is said to Java, passwords too
    conf = SparkConf().setAppName(application_id).setMaster(_with_retries(master)).setAll(list(combined.items()))
    try:
        if SparkContext._gateway is None:
            _start_jvm(conf, {name: value for name, value in combined.items() if not is_secret(name, value)}, heard)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark could not be started: {error}. It needs Java 17 or later, on the path or at JAVA_HOME"
        ) from error
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigError("the Spark session that was there has spark.speculation on, which cannot be used: start one without it")
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_jvm(conf: SparkConf, shown: Mapping[str, str], heard: Callable[[str], None] | None) -> None:
    """Start the JVM with its standard error, and thus its workers', read here if somebody wants to hear it.

    Only settings that may be shown are its arguments, which every user of the machine can list.
    """
    arguments = SparkConf(loadDefaults=False).setAll(list(shown.items()))
    if heard is None:
        SparkContext._ensure_initialized(conf=arguments)
        return
    with LineReader(heard) as writing:
        gateway = launch_gateway(arguments, {"stderr": writing})  # type: ignore[no-untyped-call]  # pyspark types most, not this
    SparkContext(conf=conf, gateway=gateway)


def session_settings(lanes: int, settings: Mapping[str, str], oauth_endpoints: Sequence[str] = ()) -> dict[str, str]:
    """All settings of the session, secrets revealed: ours, the user's, and both where they add up."""
    given = {name: value for name, value in revealed(settings).items() if name != "master"}
    combined = {**_settings(lanes), **given}
    combined["spark.jars"] = ",".join(filter(None, [*map(str, connector_jars()), given.get("spark.jars", "")]))
    # Kafka's client 3.9 lets any address have the credentials unless it is told which.
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(oauth_endpoints)}"
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        combined[name] = f"{combined.get(name, '')} {allowed}".strip()
    if not _is_local(settings.get("master", "local")):
        return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", **combined}
    return combined


def _is_local(master: str) -> bool:
    return master.split("[", maxsplit=1)[0] == "local"


def _with_retries(master: str) -> str:
    """`local[N]` gives up at the first task that dies; a dead Python worker is worth another try."""
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
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(lanes),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ANY_BYTES),
        "spark.driver.maxResultSize": "0",  # an epoch is bounded before it comes to that (max_epoch_bytes)
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.redaction.regex": REDACTED,
        "spark.redaction.string.regex": '(?i)(password|secret)="(\\\\.|[^"])*"',
        "spark.sql.streaming.pollingDelay": "0",
        # A key that is no text is routed by what String reads from it: marks in place of what is malformed, not an error.
        "spark.sql.legacy.codingErrorAction": "true",
        # The default file manager starts ten processes per file; the checkpoint is scratch here and may be lost.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        # What consumers have read ahead is kept for as long as the next epoch may want it, not for five minutes.
        "spark.kafka.consumer.fetchedData.cache.timeout": "20s",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    }
