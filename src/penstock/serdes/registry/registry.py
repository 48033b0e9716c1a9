"""`Registry`: what serdes ask a schema registry, each question once per process; and where the answers come from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent import futures
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from penstock.errors import RegistryError, SerializationError
from penstock.serdes.registry.requests import RefusalError, Requests
from penstock.serdes.registry.schemas import Reference, Registered, Schema, SchemaKind
from penstock.serdes.registry.settings import RegistrySettings

R = TypeVar("R")

REFUSED_FOR_S = 10.0
"""How long a refusal is remembered, so that a topic full of records with an unknown id does not become a flood of requests."""

MOST_REFUSED = 1_000
"""How many refusals are remembered: ids are four bytes that the producer of a record chooses."""

_SPARE_S = 1.0
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
        self._refused: dict[Hashable, tuple[float, str]] = {}  # the first one ends first
        self._asked: dict[Hashable, futures.Future[Any]] = {}
        self._lock = threading.Lock()  # never held while someone waits

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
        """Return what `make` makes, such as a parsed schema, and remember it; two threads may make it at the same time."""
        made: R | None = self._known.get(key)
        if made is not None:
            return made
        kept: R = self._known.setdefault(key, make())
        return kept

    def _ask(self, question: Hashable, ask: Callable[[], R], what: str, cure: str) -> R:
        """Return the answer to a question; a refusal is an error of the record's, until it is asked again.

        Threads that have the same question wait for the one that asks it. Others ask at the same time.
        """
        with self._lock:
            if question in self._known:
                known: R = self._known[question]
                return known
            self._raise_if_refused(question)
            asked: futures.Future[R] | None = self._asked.get(question)
            mine: futures.Future[R] = futures.Future()
            if asked is None:
                self._asked[question] = mine
        if asked is not None:
            return self._answer_to(asked)
        try:
            answer = ask()
        except RefusalError as error:
            said = _UNKNOWN.get(error.code)
            why = f"unknown {said}" if said else f"{error} (error {error.code})"
            text = f"The schema registry at {', '.join(self.settings.urls)} {what}: {why}."
            text = f"{text} {cure}." if cure else text
            with self._lock:
                self._refuse(question, text)
            mine.set_exception(SerializationError(text))
            raise SerializationError(text) from error
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            with self._lock:
                self._known[question] = answer
            mine.set_result(answer)
            return answer
        finally:
            with self._lock:
                del self._asked[question]

    def _raise_if_refused(self, question: Hashable) -> None:
        ends, text = self._refused.get(question, (0.0, ""))
        if self._clock() < ends:
            raise SerializationError(text)

    def _refuse(self, question: Hashable, text: str) -> None:
        """Remember a refusal, and forget those that have ended or are too many."""
        now = self._clock()
        self._refused.pop(question, None)
        self._refused[question] = (now + REFUSED_FOR_S, text)
        while len(self._refused) > MOST_REFUSED or next(iter(self._refused.values()))[0] <= now:
            del self._refused[next(iter(self._refused))]

    def _answer_to(self, asked: futures.Future[R]) -> R:
        """Return the answer to a question that another thread asks. It may be gone: a forked process has only one thread."""
        longest = self.settings.retry_timeout_s + self.settings.request_timeout_s * len(self.settings.urls)
        try:
            return asked.result(longest + _SPARE_S)
        except futures.TimeoutError as error:
            raise RegistryError(
                f"The schema registry at {', '.join(self.settings.urls)} has not answered for {longest:g} s. Start again."
            ) from error


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
