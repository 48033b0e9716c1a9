"""A second application under test, of what waits: timers of both clocks, scheduled sources, calls that take their time."""
