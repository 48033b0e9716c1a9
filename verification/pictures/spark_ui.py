"""A picture of Spark's UI beside a running application: the lane job, whose tasks are its slots, and the one before it."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.lane_job import LEASE_S
from verification.harness.broker import Broker
from verification.harness.chromium import Chromium
from verification.harness.processes import free_port
from verification.pictures.camera import Camera
from verification.pictures.running_shop import running_shop

_WATCHED_S = LEASE_S + 40
"""Until the first lane job has ended, and the next runs."""

_LANES = 2
_WITHOUT_PATH = """
document.querySelectorAll('#activeJob-table a, #completedJob-table a').forEach((one) => {
  one.textContent = one.textContent.replace(/ at .*[/]penstock[/]/, " at penstock/");
})
"""
"""Where Penstock is on this machine is of no interest."""

_SETTINGS = """
lanes = {lanes}

[spark]
master = "local[{lanes}]"
"spark.ui.enabled" = "true"
"spark.ui.port" = "{port}"
"""


def pictures(broker: Broker, directory: Path, into: Path) -> list[Path]:
    """Take `spark-ui-jobs` of the shop."""
    port = free_port()
    settings = directory / "spark.toml"
    settings.write_text(_SETTINGS.format(lanes=_LANES, port=port))
    with running_shop(broker, directory, engine="spark", arguments=("--config", str(settings))), Chromium() as browser:
        camera = Camera(browser, into)
        browser.rest(_WATCHED_S)
        camera.open(f"http://127.0.0.1:{port}/jobs/")
        browser.wait_for("document.querySelector('#activeJob-table') && document.querySelector('#completedJob-table')")
        assert "penstock shop-orders: slots 0-1, epochs" in browser.run("document.body.innerText")
        browser.run(_WITHOUT_PATH)
        camera.take("spark-ui-jobs")
        return camera.taken
