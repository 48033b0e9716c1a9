"""Why some methods of Kafka Streams have no equivalent in Penstock, for users of Kafka Streams."""

from __future__ import annotations

from verification.conformance.parity.rules import Never

RUNTIME = Never("configuration of the running application, not of a topology")
BY_CONFIGURATION = Never("Java-only: serdes made by reflection from configuration; a Penstock serde is a value")
NOTHING_TO_CLOSE = Never("Java-only: a Penstock serde has nothing to close")
CALLED_BY_KAFKA_STREAMS = Never("public for Kafka Streams' own use; users do not call it")
NOT_SUPPORTED_THERE = Never("throws UnsupportedOperationException in Kafka Streams itself")
STATIC_CLASS = Never("Java-only: the default constructor of a class with only static methods")
JAVA_CLIENT = Never("Java-only: made from a record of the Java client")
KNOWN_TO_THE_USER = Never("Java-only: a processor gets what it needs from its supplier, a closure")
LOCAL_FILES = Never("lanes move between hosts, so files beside a task's stores would be lost; keep state in stores")
ONE_ENGINE = Never("an application has one engine for all stores, so that an epoch is one write; `store=` gives the name")
NO_TOPIC_BETWEEN = Never("there is no topic to partition between the sides: a key has the same shard on both")
HEADERS_IN_STORES = Never("stores that keep headers, off by default in Kafka Streams 4.3: keep what you need in the value")
NO_TASKS = Never("there are no tasks: lanes may change at every start, so nothing may depend on a lane's number")
OWN_DICT = Never("a bounded map in memory that is neither logged nor shared: in Python, an attribute of the processor")
UNSEEN_CACHE = Never("a cache before a processor's own store has no visible effect, only a cost; lanes write through")
