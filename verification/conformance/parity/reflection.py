"""Kafka Streams' side of the pages: its public methods and its settings, which small Java programs read from the jars."""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from pathlib import Path

from verification.conformance.parity.rules import Method
from verification.harness.processes import KAFKA_JARS, ROOT

HERE = Path(__file__).resolve().parent
METHODS = HERE / "methods.json"
VERSION = "4.3.1"

_PACKAGE = "org/apache/kafka/streams/"
_WHOLE_PACKAGES = ("kstream/", "processor/api/")
_CLASSES = (
    "StreamsBuilder",
    "Topology",
    "AutoOffsetReset",
    "Topology$AutoOffsetReset",
    "TopologyDescription",
    "TopologyDescription$Subtopology",
    "TopologyDescription$GlobalStore",
    "TopologyDescription$Node",
    "TopologyDescription$Source",
    "TopologyDescription$Processor",
    "TopologyDescription$Sink",
    "KeyValue",
    "processor.Punctuator",
    "processor.PunctuationType",
    "processor.Cancellable",
    "processor.ConnectedStoreProvider",
    "processor.TimestampExtractor",
    "processor.FailOnInvalidTimestamp",
    "processor.LogAndSkipOnInvalidTimestamp",
    "processor.UsePartitionTimeOnInvalidTimestamp",
    "processor.WallclockTimestampExtractor",
    "processor.TopicNameExtractor",
    "processor.RecordContext",
    "processor.StreamPartitioner",
    "state.Stores",
    "state.StoreBuilder",
    "TopologyTestDriver",
    "TestInputTopic",
    "TestOutputTopic",
    "test.TestRecord",
)


class ReflectionError(Exception):
    """The jars could not be read, so the page would prove nothing."""


def reflect() -> list[Method]:
    """All public methods of the classes in scope, read from the jars."""
    jar = KAFKA_JARS / f"kafka-streams-{VERSION}.jar"
    if not jar.exists():
        raise ReflectionError(f"there is no {jar.relative_to(ROOT)}; run `make setup`")
    with tempfile.TemporaryDirectory() as classes:
        _run("javac", "-d", classes, str(HERE / "Reflection.java"))
        lines = _run("java", "-cp", f"{classes}:{KAFKA_JARS}/*", "Reflection", *_CLASSES, *_packaged(jar))
    return [_method(json.loads(line)) for line in lines.splitlines()]


def reflect_settings() -> list[str]:
    """The names of all settings of `StreamsConfig`, read from the jars."""
    with tempfile.TemporaryDirectory() as classes:
        _run("javac", "-cp", f"{KAFKA_JARS}/*", "-d", classes, str(HERE / "SettingNames.java"))
        return _run("java", "-cp", f"{classes}:{KAFKA_JARS}/*", "SettingNames").splitlines()


def _packaged(jar: Path) -> list[str]:
    """The classes of the packages that are wholly in scope, so that none is missed."""
    with zipfile.ZipFile(jar) as archive:
        names = [
            name.removeprefix(_PACKAGE).removesuffix(".class") for name in sorted(archive.namelist()) if name.endswith(".class")
        ]
    return [
        name.replace("/", ".")
        for name in names
        if name.startswith(_WHOLE_PACKAGES) and f"{name.rpartition('/')[0]}/" in _WHOLE_PACKAGES
    ]


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ReflectionError(f"there is no {command[0]}; parity needs Java") from None
    if done.returncode != 0:
        raise ReflectionError(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout


def _method(row: dict[str, object]) -> Method:
    parameters = row["parameters"]
    return Method(
        str(row["class"]),
        str(row["name"]),
        tuple(map(str, parameters)) if isinstance(parameters, list) else (),
        str(row["returns"]),
        row["static"] is True,
        row["deprecated"] is True,
    )


def save(methods: list[Method], path: Path = METHODS) -> None:
    """Save the methods, one per line, for runs without Java and for reviews of an upgrade."""
    rows = [
        {
            "class": method.owner,
            "name": method.name,
            "parameters": method.parameters,
            "returns": method.returns,
            "static": method.static,
            "deprecated": method.deprecated,
        }
        for method in methods
    ]
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def load(path: Path = METHODS) -> list[Method]:
    """The saved methods."""
    return [_method(row) for row in json.loads(path.read_text())]
