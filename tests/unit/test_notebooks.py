"""A panel of an application: what it shows, how it is kept up to date, and when that ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.requests import RefusedRequestError
from penstock.errors import ConfigError
from penstock.notebooks import panel
from tests.unit.cli.calling import FakeAdmin, serving

SEEN: dict[str, Any] = {
    "application": "shop",
    "state": "running",
    "paused": False,
    "epoch": 17,
    "records": 12_345,
    "records_per_s": 99.6,
    "live": [],
    "ready": [],
    "partitions": [
        {"topic": "orders", "partition": 0, "offset": 7, "lag": 3},
        {"topic": "orders", "partition": 1, "offset": 9_000_000, "lag": 4},
    ],
    "stores": [{"name": "totals", "kind": "timestamped", "entries": 5, "bytes": None}],
    "dropped": [],
}
PATH = "/dashboard/snapshot"


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    with serving({PATH: (200, SEEN)}) as running:
        yield running


class Notebook:
    """Stands in for IPython: what was shown, and what replaced it."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.on_update: Callable[[], None] = lambda: None

    def display(self, value: Any, *, display_id: bool) -> Notebook:
        assert display_id
        self.shown.append(value._repr_html_())
        return self

    def update(self, value: Any) -> None:
        self.shown.append(value._repr_html_())
        self.on_update()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    found = Notebook()
    module = SimpleNamespace(display=found.display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found


def test_it_shows_state_lag_sources_and_stores(admin: FakeAdmin) -> None:
    shown = panel(admin.url)._repr_html_()
    for text in ("shop", "running", "12,345", ">100<", ">7<", ">9,000,000<", "orders", "totals", "timestamped", "–"):
        assert text in shown
    assert "dropped" not in shown


def test_problems_a_pause_and_an_unknown_lag_are_shown(admin: FakeAdmin) -> None:
    problem = {"what": "restoring", "why": "75 % <done>"}
    partition = {"topic": "orders", "partition": 0, "offset": 7, "lag": None}
    dropped = [{"node": "price", "reason": "dead letter", "count": 2}]
    changed = {"paused": True, "ready": [problem], "partitions": [partition], "records_per_s": None, "dropped": dropped}
    admin.answers[PATH] = (200, {**SEEN, **changed})
    shown = panel(admin.url)._repr_html_()
    for text in ("running, paused", "restoring: 75 % &lt;done&gt;", "unknown", "dead letter"):
        assert text in shown


def test_each_time_it_is_shown_as_it_is_then(admin: FakeAdmin) -> None:
    found = panel(admin.url)
    assert ">17<" in found._repr_html_()
    admin.answers[PATH] = (200, {**SEEN, "epoch": 18})
    assert ">18<" in found._repr_html_()


def test_a_token_is_sent_and_a_refusal_is_told(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READ", "a-token-of-sixteen-letters")
    found = panel(admin.url, token="env:READ")
    found._repr_html_()
    assert admin.requests[-1][2] == "Bearer a-token-of-sixteen-letters"
    admin.answers[PATH] = (401, {"error": "no"})
    with pytest.raises(RefusedRequestError, match="not allowed"):
        found._repr_html_()


def test_it_is_updated_in_its_place_until_the_application_ends(admin: FakeAdmin, notebook: Notebook) -> None:
    def change() -> None:
        admin.answers[PATH] = (200, {**SEEN, "epoch": 18, "state": "not_running"})

    notebook.on_update = change
    panel(admin.url).watch("1ms")
    assert len(notebook.shown) == 3
    assert [">18<" in shown for shown in notebook.shown] == [False, False, True]


def test_it_ends_after_as_many_updates_as_are_asked_for(admin: FakeAdmin, notebook: Notebook) -> None:
    panel(admin.url).watch("1ms", most=2)
    assert len(notebook.shown) == 3


def test_a_server_that_is_gone_is_told_in_its_place(
    admin: FakeAdmin, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = panel(admin.url)
    notebook.on_update = lambda: monkeypatch.setattr("http.client.HTTPConnection.connect", _refuse)
    found.watch("1ms")
    assert "No admin server responds" in notebook.shown[-1]


def _refuse(connection: object) -> None:
    raise ConnectionRefusedError


def test_an_interrupt_ends_it(admin: FakeAdmin, notebook: Notebook) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    notebook.on_update = interrupt
    panel(admin.url).watch("1ms")
    assert len(notebook.shown) == 2


def test_without_a_notebook_it_says_what_to_use(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ConfigError, match="use `penstock top`"):
        panel(admin.url).watch()
