"""The chart, as far as no Helm is needed: its values and their schema. `make deploy-check` renders it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema_rs
import pytest

from penstock.version import __version__
from tests.unit.deploy.files import CHART, Document, documents

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
[VALUES] = documents(CHART / "values.yaml")
TEMPLATES = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir()}


def changed(path: str, value: Any) -> Document:
    """The values with another one at a path."""
    values = copy.deepcopy(VALUES)
    *outer, last = path.split(".")
    place = values
    for name in outer:
        place = place[name]
    place[last] = value
    return values


def is_valid(values: Document) -> bool:
    return jsonschema_rs.validator_for(SCHEMA).is_valid(values)


def test_the_schema_has_exactly_the_values_that_there_are() -> None:
    def names(schema: Document, values: Any, prefix: str = "") -> None:
        known = schema.get("properties", {})
        if schema.get("additionalProperties") is False:
            assert known.keys() - {"global"} == values.keys(), prefix
            for name in values:
                if isinstance(values[name], dict):
                    names(known[name], values[name], f"{prefix}{name}.")

    names(SCHEMA, VALUES)
    assert is_valid(VALUES)


@pytest.mark.parametrize("path", sorted((CHART / "ci").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Any) -> None:
    [values] = documents(path)
    assert is_valid({**VALUES, **values})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 2),
        ("config", {"lanes": 2}),
        ("application", "app.py app"),
        ("image.digest", "latest"),
        ("image.pullPolicy", "Sometimes"),
        ("secrets", {"KAFKA_PASSWORD": "s3cr3t"}),
        ("files", {"settings": "kafka-ca"}),
        ("environment", [{"name": "PENSTOCK_STATE_DIR", "value": "/elsewhere"}]),
        ("resources", {"requests": {"memory": "2Gi"}}),
        ("terminationGracePeriodSeconds", 0),
        ("networkPolicy.egressPorts", ["kafka"]),
        ("serviceMonitor.interval", 15),
    ],
)
def test_mistakes_are_refused(path: str, value: Any) -> None:
    assert not is_valid(changed(path, value))


def test_every_value_is_used() -> None:
    used = {name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([\w.]+)", text)}
    roots = {name.split(".")[0] for name in used}
    assert roots == VALUES.keys()
    for name in used:
        place: Any = VALUES
        for part in name.split("."):
            assert part in place, name
            place = place[part]


def test_the_chart_is_of_this_version() -> None:
    [chart] = documents(CHART / "Chart.yaml")
    assert chart["appVersion"] == __version__
    assert chart["version"] == re.sub(r"\.dev\d+$", "", __version__)
