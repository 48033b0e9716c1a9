"""Pictures of the dashboard of a running application: the whole page in light and dark, and the keys of a store."""

from __future__ import annotations

from pathlib import Path

from verification.harness.broker import Broker
from verification.harness.chromium import Chromium
from verification.pictures.camera import PHONE, SCREEN, Camera
from verification.pictures.running_shop import running_shop

_WATCHED_S = 30.0
"""How long the page is open before, so that its charts show something."""

_UNLOCKING = "401"
"""What the page complains about before somebody has entered the token."""


def pictures(broker: Broker, directory: Path, into: Path) -> list[Path]:
    """Take those of the shop: `dashboard-light`, `dashboard-dark` and `dashboard-store`."""
    with running_shop(broker, directory) as url:
        taken = take(url, into, watched_s=60)
        with Chromium() as browser:
            camera = Camera(browser, into)
            camera.open(f"{url}/")
            browser.wait_for("document.querySelector('[data-browse=orders-per-region]')")
            browser.rest(5)
            browser.run("document.querySelector('[data-browse=customers]').click()")
            browser.wait_for("document.querySelectorAll('#entries tr').length === 50")
            camera.take("dashboard-store")
            camera.check(SCREEN, PHONE)
            return [*taken, *camera.taken]


def take(url: str, into: Path, *, token: str | None = None, watched_s: float = _WATCHED_S) -> list[Path]:
    """Take `dashboard-light` and `dashboard-dark`, each of the whole page of the application at an address."""
    with Chromium() as browser:
        camera = Camera(browser, into)
        camera.open(f"{url.rstrip('/')}/")
        if token is not None:
            browser.wait_for("document.querySelector('#door').open")
            browser.write(token)
            browser.run("document.querySelector('#unlock').requestSubmit()")
        browser.wait_for("document.querySelectorAll('#epochs g').length")
        browser.rest(watched_s)
        camera.show_all()
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.rest(1.5)
            camera.take(f"dashboard-{scheme}")
        camera.check(SCREEN, PHONE, expected=(_UNLOCKING,))
        return camera.taken
