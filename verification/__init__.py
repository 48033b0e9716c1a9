"""Verification against independent judges, real brokers and real faults; one package per target of the Makefile.

`conformance` compares with Kafka Streams, `integration` with the test driver on every host, `chaos` injects faults under load,
`operations` runs an application as an operator would, `first_day` follows the first pages as their reader would; `scaling`
sizes an application, by a model instead of machines; `harness` starts brokers and processes for all of them.
"""
