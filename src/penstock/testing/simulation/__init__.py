"""A simulated world: Kafka, clocks and threads that a seed decides about, over which real applications run."""
