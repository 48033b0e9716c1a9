"""The options of an operation as Penstock's arguments; oracle/Stage.java does the same with Kafka Streams' classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import (
    EmitStrategy,
    SessionWindowed,
    Store,
    TimeWindowed,
    hopping,
    key_value_store,
    max_bytes,
    max_records,
    session,
    session_store,
    sliding,
    timestamped_key_value_store,
    tumbling,
    unbounded,
    unlimited,
    until_time_limit,
    until_window_closes,
    versioned_store,
    window_store,
)

Args = dict[str, Any]
_PLAIN: dict[str, Any] = {"string": str, "long": int, "double": float, "bytes": bytes, "json": dict}
"""Serdes by name. In Java, `json` is text; as a key, only verification/conformance/epochs has it, without a Java side."""


def given(args: Args, *names: str, **converted: Callable[[Any], Any]) -> Args:
    """The named arguments that the operation has, some of them converted."""
    found = {name: args[name] for name in names if name in args}
    return found | {name: convert(args[name]) for name, convert in converted.items() if name in args}


def serde(name: str) -> Any:
    """A type or serde from its name: `string`, `time:string:10`, `session:long`."""
    kind, _, rest = name.partition(":")
    if kind == "time":
        inner, size = rest.split(":")
        return TimeWindowed(_PLAIN[inner], int(size))
    return SessionWindowed(_PLAIN[rest]) if kind == "session" else _PLAIN[kind]


def store(args: Args) -> Store | None:
    """The store of a table."""
    if "store" not in args:
        return None
    spec: Args = args["store"]
    logging: Args = {"logging": {"segment.bytes": "1048576"} if spec["logging"] else False} if "logging" in spec else {}
    return Store(**given(spec, "name", "caching", "retention", "history", key=serde, value=serde), **logging)


def state_store(args: Args) -> Any:
    """A store of the Processor API. A cache has no visible effect, so it has none here."""
    common = {"key": serde(args["key"]), "value": serde(args["value"])}
    name, kind = args["name"], args["kind"]
    if kind == "window":
        sizes = {"window_size": args["size"], "retention": args["retention"]}
        return window_store(name, retain_duplicates=args.get("duplicates", False), **sizes, **common)
    if kind == "session":
        return session_store(name, retention=args["retention"], **common)
    if kind == "versioned":
        return versioned_store(name, history=args["history"], **common)
    return (timestamped_key_value_store if kind == "timestamped" else key_value_store)(name, **common)


def windows(spec: Args) -> Any:
    """Windows of any type."""
    kind, grace = spec["type"], given(spec, "grace")
    if kind == "unlimited":
        return unlimited(spec["start"])
    if kind == "hopping":
        return hopping(spec["size"], spec["advance"], **grace)
    makers: dict[str, Callable[..., Any]] = {"tumbling": tumbling, "sliding": sliding, "session": session}
    return makers[kind](spec["size"], **grace)


def emit_strategy(emit: str) -> EmitStrategy:
    """When windows emit."""
    return EmitStrategy.ON_WINDOW_CLOSE if emit == "close" else EmitStrategy.ON_WINDOW_UPDATE


def suppressed(args: Args) -> Any:
    """The suppression of a table's updates."""
    buffer = unbounded()
    spec: Args = args.get("buffer", {})
    if spec:
        bounded = max_records(spec["records"]) if "records" in spec else max_bytes(spec["bytes"])
        buffer = bounded.emit_early_when_full() if spec["full"] == "emit" else bounded.shut_down_when_full()
    if args["until"] == "window_closes":
        return until_window_closes(buffer, **given(args, "name"))
    return until_time_limit(args["limit"], buffer, **given(args, "name"))
