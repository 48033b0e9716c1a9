"""Penstock compared with Kafka Streams: the same topics, broker, topology and machine; `python -m benchmarks.first`."""
