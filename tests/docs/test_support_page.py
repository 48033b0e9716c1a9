"""The page of supported versions says what the package, the tools and the workflow say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from penstock.spark.installed import NEEDED, is_supported

ROOT = Path(__file__).parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def row(name: str) -> list[str]:
    """The cells of a row of the page: what is supported, what is tested here, what the workflow tests."""
    [line] = [line for line in text("docs/support.md").splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def matrix(job: str) -> dict[str, list[str]]:
    found: dict[str, Any] = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"][job]["strategy"]["matrix"]
    return found


def pyspark_of(lock: str) -> list[str]:
    return re.findall(r"^pyspark==([\d.]+)", text(lock), re.MULTILINE)


def minors(versions: list[str]) -> str:
    return ", ".join(dict.fromkeys(version.rpartition(".")[0] for version in versions))


def kafka(pom: str) -> str:
    [version] = re.findall(r"<kafka.version>(.*)</kafka.version>", text(pom))
    return str(version)


def test_python() -> None:
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text("pyproject.toml"))
    supported, _, tested = row("Python")
    assert supported.split(", ") == tested.split(", ") == declared == matrix("python")["python"]
    assert set(matrix("java")["python"]) <= set(declared)


def test_brokers() -> None:
    supported, here, tested = row("Kafka brokers")
    oldest, newest = kafka("tools/kafka-3.9/pom.xml"), kafka("tools/kafka/pom.xml")
    assert supported.startswith(f"{oldest.rpartition('.')[0]} and later")
    assert here == newest
    assert tested.split(", ") == [oldest, newest]


def test_spark() -> None:
    [(oldest, too_new)] = re.findall(r'"pyspark>=([\d.]+),<([\d.]+)"', text("pyproject.toml"))
    assert f"pyspark>={oldest},<{too_new}" == NEEDED
    [locked], tried = pyspark_of("requirements.lock"), pyspark_of("tools/sparks/pyspark.lock")
    assert all(is_supported(version) for version in tried)
    assert not is_supported(too_new)
    assert row("Spark") == [minors(tried), f"{locked}; with `make sparks` {', '.join(tried)}", ", ".join(tried)]
    steps = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]["sparks"]["steps"]
    assert {"run": "make sparks"} in steps
    assert minors(tried).startswith(oldest)
    assert f"spark-sql-kafka-0-10_2.13:{locked}" in text("tools/connector/bring")


def test_java() -> None:
    assert row("Java")[2].split(", ") == matrix("java")["java"]


def test_kafka_streams() -> None:
    assert set(row("Kafka Streams")) == {kafka("tools/kafka/pom.xml")}
