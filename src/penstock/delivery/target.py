"""`Target`: where the records of a topic are delivered, as rows of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import TopicError
from penstock.records import Delivered

Offsets = Mapping[int, int]
"""The next offset of each partition."""


class Target(ABC):
    """A system that receives each record of a topic exactly once, because it stores offsets together with the records.

    One thread calls it. If the process dies, the next one continues where `open` says.
    """

    @abstractmethod
    def open(self, name: str, topic_id: str) -> Offsets:
        """Connect; return the next offset of each partition of which it has records of this delivery.

        `name` identifies the delivery: application and topic. `topic_id` changes when the topic is deleted and created again, and
        is empty if it is not known. A target stores both with the offsets; it raises `TopicError` if it has another id.
        """

    @abstractmethod
    def write(self, rows: Sequence[Delivered], begins: Offsets, ends: Offsets) -> None:
        """Store the rows and the offsets `ends`: all of it, or nothing. There may be no rows, if only transactions have ended.

        Raises `FencedError` if the stored offsets are no longer `begins`: then another instance delivers the same topic.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    def is_temporary(self, error: Exception) -> bool:
        """Whether it may be enough to wait, open the target again and retry."""
        return isinstance(error, OSError)

    def is_of_record(self, error: Exception) -> bool:
        """Whether `write` has failed because of a record, and stored nothing: then the handler decides about that record."""
        return False


def refuse_new_topic(stored_id: str, topic_id: str, cure: str) -> None:
    """Raise if stored offsets are of a topic that was deleted and created again since; nothing is known of an empty id."""
    if stored_id and topic_id and stored_id != topic_id:
        raise TopicError(
            f"the topic was deleted and created again (its id was {stored_id} and is {topic_id}), so the stored offsets mean "
            f"nothing in it. {cure}"
        )


Row = Mapping[str, Any]
"""A row, by column."""


def columns_of(value: Any) -> dict[str, Any]:
    """Return the columns of a value: its fields, or `value` if it has none."""
    if isinstance(value, Mapping):
        return {str(name): field for name, field in value.items()}
    if isinstance(value, str | bytes | int | float | bool):
        return {"value": value}
    built: Any = value.model_dump() if hasattr(value, "model_dump") else msgspec.to_builtins(value, builtin_types=(bytes,))
    return built if isinstance(built, dict) else {"value": built}
