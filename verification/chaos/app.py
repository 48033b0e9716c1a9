"""The process under test: `python -m verification.chaos.app`; the environment says what to run and where to die."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys

PREFIX = "CHAOS_"


def main() -> None:
    """Run until stopped, or to the current end of the input if requested."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if asked("VICTIM") == "driver":  # a lane that hits a fault point kills this process, not its own worker
        os.environ["PENSTOCK_FAULT_PID"] = str(os.getpid())
    # Most starts are killed before better compiled code would pay off.
    quick_start = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    app = importlib.import_module(asked("TOPOLOGY")).app(asked("APPLICATION_ID"), asked("ON_ERROR") or "fail")
    app.run(until=asked("UNTIL") or None, spark=json.loads(asked("SPARK")) if asked("SPARK") else quick_start)


def asked(name: str) -> str:
    """The campaign's value of a variable."""
    return os.environ.get(PREFIX + name, "")


if __name__ == "__main__":
    main()
