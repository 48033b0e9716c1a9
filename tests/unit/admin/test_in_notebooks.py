"""A running application in a notebook: what it shows itself, and its panel through the admin server."""

from __future__ import annotations

from html import escape

import pytest

from penstock import App, Topology
from penstock.errors import ConfigError
from penstock.notebooks import panel
from tests.unit.admin.clients import Application
from tests.unit.admin.conftest import Serve, Stage

TOKEN = "a-token-of-sixteen-letters"


def test_an_application_shows_its_state_and_its_dashboard(application: Application) -> None:
    shown = application.running._repr_html_()
    assert "word-count" in shown
    assert "running" in shown
    assert f'href="{application.running.admin_url}"' in shown
    application.running.pause()
    assert "running, paused" in application.running._repr_html_()


def test_what_keeps_it_from_being_ready_is_shown(serve: Serve) -> None:
    running = serve(is_up=False).running
    what, why = running.health.ready()[0]
    assert escape(f"{what}: {why}") in running._repr_html_()


def test_its_panel_comes_from_its_admin_server(application: Application) -> None:
    shown = panel(application.running)._repr_html_()
    assert "word-count" in shown
    assert "counts" in shown


@pytest.mark.parametrize("name", ["admin_token", "admin_read_token"])
def test_the_panel_of_an_own_application_needs_no_token_from_outside(serve: Serve, name: str) -> None:
    assert "word-count" in panel(serve(**{name: TOKEN}).running)._repr_html_()


def test_without_an_admin_server_there_is_no_panel(stage: Stage, topology: Topology) -> None:
    stage.may_start.set()
    with App("unheard", topology).start(bootstrap_servers="nowhere:1", admin_address="off") as running:
        assert "dashboard" not in running._repr_html_()
        with pytest.raises(ConfigError, match="admin_address: it is off"):
            panel(running)
