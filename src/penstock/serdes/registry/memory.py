"""A schema registry in memory, for tests of topologies: it accepts every schema, and checks no compatibility."""

from __future__ import annotations

from penstock.serdes.registry.requests import RefusalError
from penstock.serdes.registry.schemas import Registered, Schema
from penstock.serdes.registry.settings import RegistrySettings

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_NOT_FOUND = 404


class MemorySource:
    """Schemas by id, and the ids of each subject's versions. Equal schemas have one id, as in Confluent's registry."""

    def __init__(self) -> None:
        self.settings: RegistrySettings = RegistrySettings(("memory",))
        self._ids: dict[Schema, int] = {}
        self._subjects: dict[str, list[Schema]] = {}

    @property
    def subjects(self) -> dict[str, list[str]]:
        """The texts of each subject's schemas, oldest first."""
        return {subject: [schema.text for schema in versions] for subject, versions in self._subjects.items()}

    def by_id(self, schema_id: int) -> Schema:
        """See `Source`."""
        for schema, known in self._ids.items():
            if known == schema_id:
                return schema
        raise RefusalError(_NOT_FOUND, _NO_SCHEMA, "Schema not found")

    def by_version(self, subject: str, version: int | None) -> Registered:
        """See `Source`."""
        versions = self._subjects.get(subject)
        if not versions:
            raise RefusalError(_NOT_FOUND, _NO_SUBJECT, "Subject not found")
        number = len(versions) if version is None else version
        if not 1 <= number <= len(versions):
            raise RefusalError(_NOT_FOUND, _NO_VERSION, "Version not found")
        schema = versions[number - 1]
        return Registered(self._ids[schema], schema, number)

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """See `Source`."""
        versions = self._subjects.get(subject, [])
        if schema not in versions:
            raise RefusalError(_NOT_FOUND, _NO_SCHEMA, "Schema not found")
        return self.by_version(subject, versions.index(schema) + 1)

    def register(self, subject: str, schema: Schema) -> int:
        """See `Source`."""
        versions = self._subjects.setdefault(subject, [])
        if schema not in versions:
            versions.append(schema)
        return self._ids.setdefault(schema, len(self._ids) + 1)
