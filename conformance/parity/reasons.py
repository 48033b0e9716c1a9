"""Why some methods of Kafka Streams are not said in Penstock: one list, for users of Kafka Streams to agree with."""

from __future__ import annotations

from conformance.parity.rules import Never

RUNTIME = Never("configuration of the running application, not of a topology")
BY_CONFIGURATION = Never("Java-only: serdes made by reflection from configuration; a Penstock serde is a value")
NOTHING_TO_CLOSE = Never("Java-only: a Penstock serde holds nothing that must be closed")
CALLED_BY_KAFKA_STREAMS = Never("public for Kafka Streams' own use; users do not call it")
NOT_SUPPORTED_THERE = Never("throws UnsupportedOperationException in Kafka Streams itself")
STATIC_CLASS = Never("Java-only: the default constructor of a class that only has static methods")
JAVA_CLIENT = Never("Java-only: made from a record of the Java client")
KNOWN_TO_THE_USER = Never("Java-only: a processor gets what it needs from the function that makes it, a closure")
LOCAL_FILES = Never("lanes move between hosts, so files beside a task's stores would be lost; state belongs into stores")
ONE_ENGINE = Never(
    "the engine is the application's choice, one for all stores, so that an epoch is one write; names are given by store="
)
NO_TOPIC_BETWEEN = Never("there is no topic between the sides to partition: a key's lane is the same for both")
HEADERS_IN_STORES = Never(
    "stores that keep headers, off by default in Kafka Streams 4.3: what must be kept belongs into the value"
)
NO_TASKS = Never("there are no tasks: a lane may be another one at every start, so nothing may depend on which it is")
OWN_DICT = Never("a bounded map in memory that is neither logged nor shared: in Python, a processor's own attribute")
UNSEEN_CACHE = Never("a cache before a processor's own store has no effect that can be seen, only on cost; lanes write through")
