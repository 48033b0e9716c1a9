"""What happens to a record: frozen operators that know neither Spark nor Kafka; each is imported from its own module."""
