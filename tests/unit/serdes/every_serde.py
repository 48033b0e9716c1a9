"""Every serde of the library, some with several inner ones: tests of what holds for all serdes use these."""

from __future__ import annotations

from typing import Any

from penstock.expressions.aggregates_serde import AggregatesSerde
from penstock.expressions.nodes import Function
from penstock.serdes import (
    Boolean,
    Bytes,
    ChangeSerde,
    Float32,
    Float64,
    Int16,
    Int32,
    Int64,
    Json,
    List,
    MsgPack,
    Serde,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
    ValueAndTimestampSerde,
    Void,
)

SERDES: list[Serde[Any]] = [
    AggregatesSerde(Json(), {"x": Function.MEAN, "y": Function.TOP, "z": Function.COUNT_DISTINCT}),
    Boolean(),
    Bytes(),
    ChangeSerde(String()),
    Float32(),
    Float64(),
    Int16(),
    Int32(),
    Int64(),
    Json(),
    Json(dict[str, int]),
    List(Int32()),
    List(List(String())),
    MsgPack(),
    SessionWindowed(Bytes()),
    SessionWindowed(String()),
    String(),
    TimeWindowed(Bytes(), 10),
    TimeWindowed(Bytes(), 10, changelog=True),
    TimeWindowed(Int64(), 10),
    TimeWindowed(String(), 10),
    UUIDs(),
    ValueAndTimestampSerde(Json()),
    Void(),
]
