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
UNSEEN_CACHE = Never("a cache before a processor's own store has no effect that can be seen, only on cost; lanes write through")
