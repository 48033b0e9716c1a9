"""Every Python block of the page about queries, run on lanes that its application has written."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from penstock.queries import CommittedState, ask, view
from penstock.timing import duration_ms
from tests.unit.epochs.application import Application, Raw

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")


def test_the_page_runs(tmp_path: Path) -> None:
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(others) >= 2
    names: dict[str, object] = {"__name__": "queries"}
    exec(compile(first, "docs/queries.md", "exec", dont_inherit=True), names)
    app = Application(tmp_path, lambda: names["app"].topology)  # type: ignore[attr-defined]
    app.start(2)
    app.step([Raw(b"", b"to be or not to be", 5_000)])
    state = CommittedState(app.running, lambda: app.epoch)
    names["running"] = SimpleNamespace(
        store=lambda name: view(state, name),
        query=lambda store, query, at_least_epoch=None, timeout="10s": ask(
            state, store, query, at_least_epoch, duration_ms(timeout) / 1000
        ),
    )
    for block in others:
        exec(compile(block, "docs/queries.md", "exec", dont_inherit=True), names)
    state.close()
