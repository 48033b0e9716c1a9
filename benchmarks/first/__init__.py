"""Penstock beside Kafka Streams: the same topics, broker, topology and machine, in one run; `python -m benchmarks.first`."""
