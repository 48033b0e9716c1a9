"""The subject under which a registry keeps a schema: Confluent's three strategies, by name."""

from __future__ import annotations

from penstock.errors import TopologyError

TOPIC, RECORD, TOPIC_RECORD = "topic", "record", "topic_record"
STRATEGIES = (TOPIC, RECORD, TOPIC_RECORD)


def check_strategy(strategy: str) -> str:
    """Return the name of a strategy; raise if there is none of that name."""
    if strategy not in STRATEGIES:
        raise TopologyError(f"Unknown subject strategy {strategy!r}. Use one of {', '.join(map(repr, STRATEGIES))}.")
    return strategy


def subject_of(strategy: str, topic: str, is_key: bool, record: str) -> str:
    """Return the subject of a topic's keys or values, or of a record by its full name.

    Example:
        >>> subject_of("topic", "orders", False, "com.acme.Order")
        'orders-value'
        >>> subject_of("record", "orders", False, "com.acme.Order")
        'com.acme.Order'
        >>> subject_of("topic_record", "orders", False, "com.acme.Order")
        'orders-com.acme.Order'
    """
    if strategy == RECORD:
        return record
    return f"{topic}-{record}" if strategy == TOPIC_RECORD else f"{topic}-{'key' if is_key else 'value'}"
