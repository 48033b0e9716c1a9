"""Slots in processes that the driver forks itself: the engine `local`, which runs without Spark."""
