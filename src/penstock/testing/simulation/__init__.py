"""A simulated world: Kafka, clocks, threads and disks that a seed decides about, over which real applications run."""

from penstock.testing.simulation.world import Life, Weather, World

__all__ = ["Life", "Weather", "World"]
