"""The files of `deploy/`, read: manifests, settings and variables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "penstock"
KUBERNETES = DEPLOY / "kubernetes"
SPARK = DEPLOY / "spark" / "kubernetes"
STANDALONE = DEPLOY / "spark" / "standalone"

Document = dict[str, Any]

_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def documents(path: Path) -> list[Document]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def plain_yaml() -> list[Path]:
    """Every YAML file that is not a template."""
    return sorted(path for path in DEPLOY.rglob("*.yaml") if "templates" not in path.parts)


def manifests(directory: Path) -> list[Document]:
    """The objects of a directory that Kubernetes would have, without examples of secrets."""
    names = [path for path in sorted(directory.glob("*.yaml")) if path.name not in {"kustomization.yaml", "secrets.example.yaml"}]
    return [document for path in names for document in documents(path)]


def one(found: list[Document], kind: str) -> Document:
    """The only object of a kind."""
    [document] = [document for document in found if document["kind"] == kind]
    return document


def pods(found: list[Document]) -> Iterator[Document]:
    """The specifications of pods: in stateful sets, and in templates for executors."""
    for document in found:
        if document["kind"] == "StatefulSet":
            yield document["spec"]["template"]["spec"]
        if document["kind"] == "ConfigMap" and "executor.yaml" in document["data"]:
            yield yaml.safe_load(document["data"]["executor.yaml"])["spec"]


def variables(container: Document) -> dict[str, str]:
    """The variables of a container with their values; those from secrets have the form `secret/key`."""
    found = {}
    for entry in container.get("env", []):
        reference = entry.get("valueFrom", {}).get("secretKeyRef")
        found[entry["name"]] = entry["value"] if reference is None else f"{reference['name']}/{reference['key']}"
    return found


def settings_files() -> dict[str, str]:
    """The text of every penstock.toml, by where it is."""
    found = {str(STANDALONE.relative_to(ROOT)): (STANDALONE / "penstock.toml").read_text(encoding="utf-8")}
    for path in plain_yaml():
        for document in documents(path):
            text = document.get("config") or document.get("data", {}).get("penstock.toml")
            if text is not None:
                found[str(path.relative_to(ROOT))] = text
    return found


def toml(text: str) -> Document:
    """The content of a TOML file."""
    found: Document = _toml.loads(text)
    return found


def settings(text: str) -> dict[str, Any]:
    """The settings of a penstock.toml; those of tables as `kafka/name`."""
    found: dict[str, Any] = {}
    for name, value in toml(text).items():
        found.update(
            {f"{name}/{inner}": given for inner, given in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return found


def references(text: str) -> set[str]:
    """The environment variables to which settings refer."""
    return set(re.findall(r'"env:(\w+)"', text))
