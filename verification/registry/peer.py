"""Avro's bytes here and in Java: what Java writes is read and written again here, and the other way round; both must be equal."""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from penstock.serdes import Avro, Serde
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.serde import connected
from verification.harness.processes import HarnessError
from verification.registry.apicurio import REGISTRY, newest_java

RECORDS = 50
TIMEOUT_S = 600
_SOURCE = Path(__file__).parent / "AvroPeer.java"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def _record(name: str, **fields: Any) -> dict[str, Any]:
    within = _within(name, **fields)
    return {"type": "record", "name": name, "namespace": "com.acme", "fields": within["fields"]}


def _within(name: str, **fields: Any) -> dict[str, Any]:
    """A record within another has its namespace. Java leaves it out, and Apicurio gives another text another id."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": of} for field, of in fields.items()]}


SCHEMAS: dict[str, Any] = {
    "numbers": _record("Numbers", small="int", large="long", single="float", double="double", flag="boolean"),
    "texts": _record("Texts", text="string", data="bytes", fixed={"type": "fixed", "name": "Four", "size": 4}),
    "choices": _record(
        "Choices",
        colour={"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
        optional=["null", "string"],
        either=["int", "string", "null"],
    ),
    "collections": _record(
        "Collections", words={"type": "array", "items": "string"}, counts={"type": "map", "values": ["null", "long"]}
    ),
    "nested": _record(
        "Nested", inner=_within("Inner", id="string"), several={"type": "array", "items": "Inner"}, perhaps=["null", "Inner"]
    ),
    "times": _record("Times", at={"type": "long", "logicalType": "timestamp-millis"}, day={"type": "int", "logicalType": "date"}),
    "text": "string",
}


class Peer:
    """Java's serializer and deserializer, run once with all questions."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, lines: Sequence[str]) -> list[bytes]:
        """Return the bytes of all answers."""
        with tempfile.TemporaryDirectory(prefix="peer-") as directory:
            java = newest_java()
            jars = f"{REGISTRY}/*"
            _run([str(java.parent / "javac"), "-cp", jars, "-d", directory, str(_SOURCE)], "")
            command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{directory}:{jars}", "AvroPeer", self._url]
            return [bytes.fromhex(line) for line in _run(command, "".join(f"{line}\n" for line in lines)).splitlines()]


def _run(command: list[str], given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise HarnessError(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def compared(registry: Registry, peer: Peer, seed: int) -> Iterable[tuple[str, str | None]]:
    """Compare both directions; yield the name of each case, and what is wrong with it."""
    serdes = {name: _of_topic(registry, name) for name in SCHEMAS}
    chance = random.Random(seed)
    ours = {name: [serdes[name].serialize(made(SCHEMAS[name], chance, {})) for _ in range(RECORDS)] for name in SCHEMAS}
    questions = [f"peer-{name}\t{_text(schema)}\t{RECORDS}" for name, schema in SCHEMAS.items()]
    questions += [f"peer-{name}\t{data.hex()}" for name, written in ours.items() for data in written]
    answers = iter(peer.ask(questions))
    for name, serde in serdes.items():
        for number in range(RECORDS):
            theirs = next(answers)
            yield f"java to python: {name} {number}", _difference(theirs, serde.serialize(serde.deserialize(theirs)))
    for name, written in ours.items():
        for number, data in enumerate(written):
            yield f"python to java: {name} {number}", _difference(data, next(answers))


def _of_topic(registry: Registry, name: str) -> Serde[Any]:
    return connected(Avro(schema=_text(SCHEMAS[name])), registry).for_topic(f"peer-{name}", is_key=False)


def _difference(one: bytes, other: bytes) -> str | None:
    return None if one == other else f"{one.hex()} became {other.hex()}"


def _text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


def made(schema: Any, chance: random.Random, known: dict[str, Any]) -> Any:
    """Return a value of a schema; `known` are the types that it has named so far."""
    if isinstance(schema, list):
        return made(chance.choice(schema), chance, known)
    if isinstance(schema, str):
        return made(known[schema], chance, known) if schema in known else _plain(schema, chance)
    kind = schema["type"]
    if "name" in schema:
        known[schema["name"]] = schema
    if kind == "record":
        return {field["name"]: made(field["type"], chance, known) for field in schema["fields"]}
    if kind == "array":
        return [made(schema["items"], chance, known) for _ in range(chance.randrange(4))]
    if kind == "map":
        return {"key": made(schema["values"], chance, known)} if chance.random() < 0.5 else {}
    if kind == "enum":
        return chance.choice(schema["symbols"])
    if kind == "fixed":
        return chance.randbytes(schema["size"])
    if schema["logicalType"] == "date":
        return _EPOCH.date() + dt.timedelta(days=chance.randrange(40_000))
    return _EPOCH + dt.timedelta(milliseconds=chance.randrange(4_000_000_000_000))


def _plain(kind: str, chance: random.Random) -> Any:
    if kind == "string":
        return "".join(chr(chance.randrange(0x20, 0x2000)) for _ in range(chance.randrange(9)))
    if kind == "bytes":
        return chance.randbytes(chance.randrange(9))
    whole = {"int": 31, "long": 63}
    if kind in whole:
        return chance.randrange(-(1 << whole[kind]), 1 << whole[kind])
    return {"null": None, "boolean": chance.random() < 0.5, "float": 0.5, "double": chance.random()}[kind]
