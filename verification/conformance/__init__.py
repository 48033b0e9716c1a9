"""Penstock compared with Kafka Streams: the same topologies and inputs run through both, and every output is compared.

Run it with `python -m verification.conformance run`; `spec` defines a case, `oracle/` is the Java side.
"""
