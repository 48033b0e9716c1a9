"""`Registry`: what serdes ask a schema registry, each question once per process; and where the answers come from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from penstock.errors import RegistryError, SerializationError
from penstock.serdes.registry.requests import RefusalError, Requests
from penstock.serdes.registry.schemas import Reference, Registered, Schema, SchemaKind
from penstock.serdes.registry.settings import RegistrySettings

R = TypeVar("R")

REFUSED_FOR_S = 10.0
"""How long a refusal is remembered, so that a topic full of records with an unknown id does not become a flood of requests."""

_UNKNOWN = {40401: "subject", 40402: "version", 40403: "schema"}


class Source(Protocol):
    """Where a registry's answers come from. Each method may raise `RefusalError` or `RegistryError`."""

    settings: RegistrySettings

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema of an id."""

    def by_version(self, subject: str, version: int | None) -> Registered:
        """Return a version of a subject; with None, the latest."""

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """Return a schema that a subject has."""

    def register(self, subject: str, schema: Schema) -> int:
        """Add a schema to a subject, if it does not have it; return its id."""


class Registry:
    """The questions of serdes to a source. It can be pickled; what it has learnt stays in its process."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self.source: Source = source
        self._clock = clock
        self._forget()

    def _forget(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._refused: dict[Hashable, tuple[float, SerializationError]] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Registry], tuple[Source]]:
        return Registry, (self.source,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self.source is other.source

    def __hash__(self) -> int:
        return id(self.source)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self.settings.urls)})"

    @property
    def settings(self) -> RegistrySettings:
        """How serdes use it, unless they say otherwise."""
        return self.source.settings

    def schema(self, schema_id: int) -> Schema:
        """Return the schema of an id that a record carries."""
        cure = "The record was written with another registry, or is not in the registry's format"
        return self._ask(("id", schema_id), lambda: self.source.by_id(schema_id), f"has no schema with id {schema_id}", cure)

    def referenced(self, reference: Reference) -> Schema:
        """Return the schema that another one refers to."""
        subject, version = reference.subject, reference.version
        what = f"has no version {version} of subject {subject!r}, to which {reference.name!r} refers"
        return self._ask(("version", subject, version), lambda: self.source.by_version(subject, version), what, "").schema

    def latest(self, subject: str) -> Registered:
        """Return the latest schema of a subject, as of the first time that it is asked for."""
        what = f"has no latest schema of subject {subject!r}"
        return self._ask(("latest", subject), lambda: self.source.by_version(subject, None), what, "Register one")

    def register(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema in a subject, which gets it if it does not have it."""
        what = f"refuses the schema for subject {subject!r}"
        cure = "Change it compatibly, or change the subject's compatibility level"
        return self._ask(("register", subject, schema), lambda: self.source.register(subject, schema), what, cure)

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """Return the id and the version of a schema that a subject must have."""
        what = f"does not have the schema in subject {subject!r}"
        cure = "Register it, or set 'auto.register.schemas' or 'use.latest.version' of schema_registry"
        return self._ask(("lookup", subject, schema), lambda: self.source.lookup(subject, schema), what, cure)

    def memo(self, key: Hashable, make: Callable[[], R]) -> R:
        """Return what `make` makes, such as a parsed schema, once per process."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = make()
            made: R = found
            return made

    def _ask(self, question: Hashable, ask: Callable[[], R], what: str, cure: str) -> R:
        """Return the answer to a question; a refusal is an error of the record's, until it is asked again."""
        with self._lock:
            if question in self._known:
                known: R = self._known[question]
                return known
            at, refusal = self._refused.get(question, (0.0, None))
            if refusal is not None and self._clock() < at + REFUSED_FOR_S:
                raise refusal
            try:
                answer = self._known[question] = ask()
            except RefusalError as error:
                said = _UNKNOWN.get(error.code)
                why = f"unknown {said}" if said else f"{error} (error {error.code})"
                text = f"The schema registry at {', '.join(self.settings.urls)} {what}: {why}."
                refused = SerializationError(f"{text} {cure}." if cure else text)
                self._refused[question] = (self._clock(), refused)
                raise refused from error
            return answer


class RemoteSource:
    """A registry with Confluent's HTTP interface: Confluent's own, Apicurio, Karapace and others."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings: RegistrySettings = settings
        self._requests = Requests(settings)

    def __reduce__(self) -> tuple[type[RemoteSource], tuple[RegistrySettings]]:
        return RemoteSource, (self.settings,)

    def by_id(self, schema_id: int) -> Schema:
        """See `Source`."""
        return _schema(self._requests.get(f"/schemas/ids/{schema_id}"))

    def by_version(self, subject: str, version: int | None) -> Registered:
        """See `Source`."""
        which = "latest" if version is None else version
        return _registered(self._requests.get(f"/subjects/{quote(subject, safe='')}/versions/{which}"))

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """See `Source`."""
        return _registered(self._requests.post(f"/subjects/{quote(subject, safe='')}{self._normalized}", _body(schema)))

    def register(self, subject: str, schema: Schema) -> int:
        """See `Source`."""
        answer = self._requests.post(f"/subjects/{quote(subject, safe='')}/versions{self._normalized}", _body(schema))
        return _whole(answer, "id")

    # ---- read only, for checks before a start -------------------------------------------------------------------------

    def types(self) -> Any:
        """Return the formats that the registry knows: the simplest request, which needs credentials as the others do."""
        return self._requests.get("/schemas/types")

    def mode(self, subject: str) -> str | None:
        """Return the mode of a subject, such as READONLY; None if the registry does not tell."""
        try:
            return str(self._requests.get(f"/mode/{quote(subject, safe='')}?defaultToGlobal=true")["mode"])
        except (RefusalError, RegistryError, KeyError, TypeError):
            return None

    def is_compatible(self, subject: str, schema: Schema) -> bool:
        """Whether a subject, which has other schemas, would accept this one."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest{self._normalized}"
        return bool(self._requests.post(path, _body(schema)).get("is_compatible"))

    @property
    def _normalized(self) -> str:
        return "?normalize=true" if self.settings.normalize else ""


def _body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not SchemaKind.AVRO:  # the registry's default; old ones know no other, nor the name of this field
        body["schemaType"] = schema.kind.value
    if schema.references:
        body["references"] = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    return body


def _schema(answer: Any) -> Schema:
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"])) for each in answer.get("references") or ()
        )
        return Schema(SchemaKind(answer.get("schemaType") or "AVRO"), str(answer["schema"]), references)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RegistryError(f"The schema registry answers in an unknown form: {error!r}.") from error


def _registered(answer: Any) -> Registered:
    return Registered(_whole(answer, "id"), _schema(answer), _whole(answer, "version"))


def _whole(answer: Any, name: str) -> int:
    try:
        return int(answer[name])
    except (KeyError, TypeError, ValueError) as error:
        raise RegistryError(f"The schema registry answers in an unknown form: {error!r}.") from error
