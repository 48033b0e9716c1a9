"""Operators: frozen values that say what a node does with a record. They import neither Spark nor Kafka."""
