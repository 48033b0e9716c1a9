"""Penstock beside Kafka Streams: the same topologies and inputs run through both, every output compared.

`python -m conformance run` is the door; `spec` says what a case is, `oracle/` holds the Java side.
"""
