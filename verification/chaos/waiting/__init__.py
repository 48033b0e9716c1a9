"""A second application under test, with pending work: timers of both clocks, scheduled sources, slow calls."""
