"""The Spark session an application runs on, with the settings that an epoch of a tenth of a second needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.spark.jars import connector_jars
from penstock.spark.output import LineReader

_FORBIDDEN = {"spark.speculation": "true"}
"""A speculative twin of a task would only waste work: its lane's store can be written by one of them."""

_LOG = Path(__file__).parent / "log4j2.properties"

__all__ = ["DataFrame", "SparkSession", "has_session", "open_session"]


def has_session() -> bool:
    """Whether this process has a session already, which is then used and left open."""
    return SparkContext._active_spark_context is not None  # an "active session" is a thread's own


def open_session(
    application_id: str, lanes: int, settings: Mapping[str, str], heard: Callable[[str], None] | None = None
) -> SparkSession:
    """A session of its own for the application; `settings` are the user's and win.

    `heard` is told every line that the JVM, if it is started here, and its Python workers write to standard error.
    """
    for name, value in _FORBIDDEN.items():
        if settings.get(name, "").lower() == value:
            raise ConfigError(f"[spark] {name} = {value} cannot be used: remove it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import the user's modules as this process does, also those beside the script that was started.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    master = settings.get("master", f"local[{lanes}]")
    conf = SparkConf().setAppName(application_id).setMaster(_with_retries(master))
    for name, value in {**_settings(lanes), **settings}.items():
        if name != "master":
            conf = conf.set(name, value)
    try:
        if heard is not None and SparkContext._gateway is None:
            _start_jvm(conf, heard)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark could not be started: {error}. It needs Java 17 or later, on the path or at JAVA_HOME"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_jvm(conf: SparkConf, heard: Callable[[str], None]) -> None:
    """Start the JVM with its standard error, and thus its workers', read here."""
    with LineReader(heard) as writing:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]  # pyspark types most, not this
    SparkContext(conf=conf, gateway=gateway)


def _with_retries(master: str) -> str:
    """`local[N]` gives up at the first task that dies; a dead Python worker is worth another try."""
    if master == "local":
        return "local[1,4]"
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},4]"
    return master


def _settings(lanes: int) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(lanes),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # Below the largest number Spark measures the whole batch again for every row, which was most of an epoch's time.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|user[.]info|key[.]pem|credential",
        "spark.redaction.string.regex": '(?i)(password|secret)="[^"]*"',
        "spark.sql.streaming.pollingDelay": "0",
        # The default file manager starts ten processes per file; the checkpoint is scratch here and may be lost.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
    }
