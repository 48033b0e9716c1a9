"""The test driver, its topics and its records."""

from __future__ import annotations

from verification.conformance.parity.reasons import HEADERS_IN_STORES, JAVA_CLIENT
from verification.conformance.parity.rules import EVERY_CASE, Arguments, Rule, Rules, To

_DRIVER = "penstock.testing.TopologyTestDriver"
_INPUT = "penstock.testing.InputTopic"
_OUTPUT = "penstock.testing.OutputTopic"
_TWO = ("Object", "Object")
_TIMES = {"Instant": "timestamp=", "long": "timestamp=", "Headers": "headers="}
_ALWAYS = (EVERY_CASE,)
_DRIVEN = {"Topology": "topology", "Properties": "caching=", "Instant": "wall_clock="}

_TEST_DRIVER = (
    Rule("new", To(_DRIVER, _DRIVEN, _ALWAYS, note="default serdes are the topology's"), ("Properties",)),
    Rule("new", To(_DRIVER, _DRIVEN, _ALWAYS)),
    Rule(
        "createInputTopic",
        To(
            f"{_DRIVER}.input",
            {"String": "topic", "Serializer": ("key=", "value="), "Instant": "start=", "Duration": "advance="},
            _ALWAYS,
        ),
    ),
    Rule("createOutputTopic", To(f"{_DRIVER}.output", {"String": "topic", "Deserializer": ("key=", "value=")}, _ALWAYS)),
    Rule(
        "getTimestampedKeyValueStoreWithHeaders getTimestampedWindowStoreWithHeaders getSessionStoreWithHeaders",
        HEADERS_IN_STORES,
    ),
    Rule(
        "getStateStore getKeyValueStore getTimestampedKeyValueStore getVersionedKeyValueStore getWindowStore "
        "getTimestampedWindowStore getSessionStore",
        To(f"{_DRIVER}.store", {"String": "name"}),
    ),
    Rule("getAllStateStores", To(f"{_DRIVER}.stores", verbs=_ALWAYS)),
    Rule("producedTopicNames", To(f"{_DRIVER}.produced_topic_names", verbs=_ALWAYS)),
    Rule("advanceWallClockTime", To(f"{_DRIVER}.advance_wall_clock", {"Duration": "advance"}, ("processor:wall_timer",))),
    Rule("metrics", To(f"{_DRIVER}.dropped", note="the counts of skipped records")),
    Rule("close", To(f"{_DRIVER}.close", verbs=_ALWAYS)),
)

_INPUT_TOPIC = (
    Rule("advanceTime", To(f"{_INPUT}.advance_time", {"Duration": "advance"})),
    Rule("pipeInput", To(f"{_INPUT}.pipe_record", {"TestRecord": "record"}), ("TestRecord",)),
    Rule("pipeInput", To(f"{_INPUT}.pipe", {"Object": ("key=", "value"), **_TIMES}, _ALWAYS), _TWO),
    Rule("pipeInput", To(f"{_INPUT}.pipe", {"Object": "value", **_TIMES})),
    Rule("pipeKeyValueList", To(f"{_INPUT}.pipe_pairs", {"List": "pairs", "Instant": "start=", "Duration": "advance="})),
    Rule("pipeValueList", To(f"{_INPUT}.pipe_values", {"List": "values", "Instant": "start=", "Duration": "advance="})),
    Rule("pipeRecordList", To(f"{_INPUT}.pipe_records", {"List": "records"})),
)

_OUTPUT_TOPIC = (
    Rule("getQueueSize", To(f"{_OUTPUT}.__len__", note="`len(topic)`", bare=True)),
    *(
        Rule(java, To(f"{_OUTPUT}.{python}", verbs=_ALWAYS if python == "records" else ()))
        for java, python in {
            "isEmpty": "is_empty",
            "readKeyValue": "read_pair",
            "readKeyValuesToList": "pairs",
            "readKeyValuesToMap": "table",
            "readRecord": "read",
            "readRecordsToList": "records",
            "readValue": "read_value",
            "readValuesToList": "values",
        }.items()
    ),
)

_RECORD: Arguments = {"Object": ("key", "value"), "Instant": "timestamp", "Long": "timestamp", "Headers": "headers"}
_UNTIMED = "at the input topic's time"
_TEST_RECORD = (
    Rule("new", JAVA_CLIENT, ("ConsumerRecord",)),
    Rule("new", JAVA_CLIENT, ("ProducerRecord",)),
    Rule("new", To("penstock.Record", _RECORD), ("Instant",)),
    Rule("new", To("penstock.Record", _RECORD), ("Long",)),
    Rule("new", To(f"{_INPUT}.pipe", {"Object": ("key=", "value"), **_TIMES}, note=_UNTIMED), _TWO),
    Rule("new", To(f"{_INPUT}.pipe", {"Object": "value"}, note=_UNTIMED)),
    Rule("getKey key", To("penstock.Record.key", verbs=_ALWAYS)),
    Rule("getValue value", To("penstock.Record.value", verbs=_ALWAYS)),
    Rule("getHeaders headers", To("penstock.Record.headers", verbs=_ALWAYS)),
    Rule("getRecordTime timestamp", To("penstock.Record.timestamp", verbs=_ALWAYS)),
)

DRIVER: Rules = {
    "TopologyTestDriver": _TEST_DRIVER,
    "TestInputTopic": _INPUT_TOPIC,
    "TestOutputTopic": _OUTPUT_TOPIC,
    "test.TestRecord": _TEST_RECORD,
    "KeyValue": (
        Rule("new pair", To("penstock.KStream.map", {"Object": ""}, ("stream_map",), fixed="mapper", note="a pair is a tuple")),
    ),
}
