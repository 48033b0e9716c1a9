"""The cost of waiting: timers of a lane, and calls to a service on a broker and Spark; `python -m benchmarks.time`."""
