"""The checks of `penstock doctor` that need the schema registry: it answers, and has or accepts what serdes write.

They only read: nothing is registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from http import HTTPStatus
from typing import Any, NamedTuple

from penstock.app import App
from penstock.cli.findings import Finding, fail, ok
from penstock.config import Config
from penstock.errors import ConfigError, RegistryError, SerializationError
from penstock.serdes import Serde
from penstock.serdes.registry.registry import Registry, RemoteSource
from penstock.serdes.registry.requests import RefusalError
from penstock.serdes.registry.schemas import Schema
from penstock.serdes.registry.serde import Place, RegistrySerde, registry_serde, schemaless
from penstock.serdes.registry.subjects import RECORD
from penstock.topology import SinkNode, Topology
from penstock.topology.bindings import bound_nodes, bound_specs, changelog_topic

_TIMEOUT_S = 5.0
"""How long to wait for a registry at most: an application may wait longer."""

_WRITABLE = frozenset({"READWRITE", "IMPORT"})
_REGISTRY, _SUBJECTS = "schema registry", "subjects"


class AskedSource(RemoteSource):
    """A registry that is only asked: what would be registered must be there."""

    def register(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema that a subject has."""
        return self.lookup(subject, schema).id


class Standing(Enum):
    """What a registry has of a schema, if nothing is wrong."""

    KNOWN = "known"
    NEW = "new"
    """A start registers it."""


class Written(NamedTuple):
    """A serde that writes keys or values of a topic."""

    serde: RegistrySerde[Any]
    place: Place

    @property
    def subject(self) -> str:
        """The subject of its schema."""
        return self.serde.subject_at(self.place)


def examine_registry(app: App | None, config: Config) -> Iterator[Finding]:
    """Check the registry, if the application uses one; without an application, if there is one in the settings."""
    settings = config.registry_settings
    source = None
    if settings is not None:
        source = AskedSource(replace(settings, retry_timeout_s=min(settings.retry_timeout_s, _TIMEOUT_S)))
    try:
        serdes = [] if app is None else list(_serdes(app.topology, app.application_id, source))
    except ConfigError as error:
        yield fail(_REGISTRY, str(error), "see the message")
        return
    if source is None or (app is not None and not serdes):
        return
    try:
        with suppress(RefusalError):  # an old registry, which knows only Avro and not this request
            source.types()
        yield ok(_REGISTRY, f"{', '.join(source.settings.urls)} answers")
        yield from subjects(source, [Written(serde, place) for serde, place in serdes if place is not None])
    except RegistryError as error:
        yield fail(_REGISTRY, str(error), "see the message")


def subjects(source: RemoteSource, written: Iterable[Written]) -> Iterator[Finding]:
    """Check that the schemas that serdes write with are in their subjects, or would be accepted."""
    by_subject = {each.subject: each for each in written}
    found = {subject: _standing(source, by_subject[subject]) for subject in sorted(by_subject)}
    yield from (problem for problem in found.values() if isinstance(problem, Finding))
    known = [subject for subject, standing in found.items() if standing is Standing.KNOWN]
    new = [subject for subject, standing in found.items() if standing is Standing.NEW]
    parts = [f"{len(known)} have what is written"] if known else []
    if new:
        parts.append(f"a start registers {', '.join(new)} (registries do not reveal whether the user may)")
    if parts:
        yield ok(_SUBJECTS, "; ".join(parts))


def _standing(source: RemoteSource, written: Written) -> Finding | Standing:
    """Return what the registry has of what the application writes with, or what would prevent it from writing."""
    serde, subject = written.serde, written.subject
    registry = serde.require_registry()
    uses_latest, may_register = serde.usage.uses_latest(registry), serde.usage.may_register(registry)
    try:
        if uses_latest:
            registry.latest(subject)
            return Standing.KNOWN
        schema = serde.own_schema(subject)
        if schema is None:
            raise schemaless(serde, written.place)
        if not may_register:
            registry.lookup(subject, schema)
            return Standing.KNOWN
    except SerializationError as error:
        imports_are_missing = not uses_latest and may_register and isinstance(error.__cause__, RefusalError)
        return Standing.NEW if imports_are_missing else fail(_SUBJECTS, str(error), "see the message")
    return _registration(source, subject, schema)


def _registration(source: RemoteSource, subject: str, schema: Schema) -> Finding | Standing:
    """Return whether the subject has the schema, or what would prevent a serde from registering it."""
    with suppress(RefusalError):
        source.lookup(subject, schema)
        return Standing.KNOWN
    mode = source.mode(subject)
    if mode is not None and mode not in _WRITABLE:
        cure = "register its schema elsewhere, or change the mode"
        return fail(_SUBJECTS, f"{subject!r} does not have the schema, and accepts none: its mode is {mode}", cure)
    try:
        if source.is_compatible(subject, schema):
            return Standing.NEW
    except RefusalError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # the subject has no version to compare with
            return Standing.NEW
        why = f"{error} (error {error.code})"
        return fail(_SUBJECTS, f"the registry refuses the schema for {subject!r}: {why}", "correct the schema")
    cure = "change it compatibly, or change the subject's compatibility level"
    return fail(_SUBJECTS, f"the schema for {subject!r} is not compatible with its latest version", cure)


Placed = tuple[RegistrySerde[Any], Place | None]


def _serdes(topology: Topology, application_id: str, source: RemoteSource | None) -> Iterator[Placed]:
    """Yield every serde with a registry, and what it writes; None if it only reads, or writes to topics that records choose."""
    registry = None if source is None else Registry(source)
    for node in bound_nodes(topology.nodes, registry).values():
        for is_key, serde in ((True, getattr(node, "key", None)), (False, getattr(node, "value", None))):
            yield from _placed(serde, _topic(node, serde), is_key)
    for name, spec in bound_specs(topology.stores, application_id, registry).items():
        yield from _placed(spec.value, changelog_topic(application_id, name), is_key=False)


def _placed(serde: Serde[Any] | None, topic: str | None, is_key: bool) -> Iterator[Placed]:
    found = registry_serde(serde)
    if found is not None:
        yield found, None if topic is None else Place(topic, is_key)


def _topic(node: object, serde: Serde[Any] | None) -> str | None:
    """Return the topic that a node writes to; any, if the subject does not depend on it; None if it writes to none."""
    if not isinstance(node, SinkNode) or node.internal:
        return None
    if isinstance(node.topic, str):
        return node.topic
    found = registry_serde(serde)
    return "" if found is not None and found.usage.subject == RECORD else None
