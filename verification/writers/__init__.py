"""Several writers in one transaction, on real brokers: faults while they write, and how fast they are."""
