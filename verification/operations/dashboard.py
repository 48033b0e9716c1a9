"""The dashboard of a real application with three stages under load, opened in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.workloads import Totals
from benchmarks.workloads.loading import load
from verification.harness.broker import Broker
from verification.harness.chromium import Chromium
from verification.operations.served_application import job_of, serving
from verification.pictures.dashboard import take

PICTURES = Path("reports")


def run(broker: Broker, directory: Path, into: Path = PICTURES, records: int = 3_000_000) -> dict[str, Any]:
    """Take the pictures; errors of the page are errors."""
    loaded = load(broker.bootstrap_servers, Totals(title="", keys=20_000, records=records), name="orders")
    job = job_of(broker, directory, "orders-by-customer", loaded, topology="rekeyed")
    with serving(job, {"PENSTOCK_MAX_EPOCH_RECORDS": "40000"}) as (application, admin, _):
        admin.wait_until_ready()
        pictures = take(admin.url, into)
        browsed = _browsed(admin.url)
        application.check()
    return {"pictures": [str(picture) for picture in pictures], "browsed_rows": browsed}


def _browsed(url: str) -> int:
    """Browse the first store, and return the number of rows that the page shows."""
    with Chromium(width=1280, height=800) as browser:
        browser.open(f"{url.rstrip('/')}/")
        browser.wait_for("document.querySelector('[data-browse]')")
        browser.run("document.querySelector('[data-browse]').click()")
        browser.wait_for("document.querySelectorAll('#entries tr').length")
        shown = str(browser.run("document.querySelector('#entries').textContent"))
        assert "undefined" not in shown, f"the page does not understand the answer of the server: {shown[:200]}"
        assert not browser.complaints, f"the page reports errors: {browser.complaints}"
        return int(browser.run("document.querySelectorAll('#entries tr').length"))
