"""What the pictures of the terminal show: a new project that is tried, mistakes in it, a plan, and an application at work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError, TopologyError
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.chromium import Chromium
from verification.pictures.camera import Camera
from verification.pictures.running_shop import USUAL_PORT, running_shop
from verification.pictures.terminal import Command, Terminal, take

TRY = "penstock try app.py --input orders=data/orders.jsonl"
LOST = 5
"""The exit code of a plan that leaves a store behind."""
_ORDERS_S = 15
"""How long the shop has been running when it is shown."""


def pictures(broker: Broker, directory: Path, into: Path) -> list[Path]:
    """Take `terminal-try`, `terminal-error`, `terminal-plan` and `terminal-top`."""
    _ = Terminal(directory=directory).run(Command(line="penstock new shop", shows=["penstock try app.py"]))
    project = directory / "shop"
    with Chromium() as browser:
        camera = Camera(browser, into)

        def show(name: str, screen: str, columns: int = 100) -> None:
            take(camera, f"terminal-{name}", screen, columns)

        show("try", tried(project))
        show("error", mistaken(project))
        show("plan", planned(project, broker))
        with running_shop(broker, directory / "running") as url:
            browser.rest(_ORDERS_S)
            show("top", watched(directory, url), 120)
        return camera.taken


def tried(project: Path) -> str:
    """A topology over a file of records."""
    return Terminal(directory=project).run(
        Command(line=TRY, shows=["topic totals", "store totals", '{"orders": 2, "amount": 43.0}'])
    )


def mistaken(project: Path) -> str:
    """Two mistakes: a function with too few arguments, and a record that is not what the source reads."""
    terminal, program, data = Terminal(directory=project), project / "app.py", project / "data" / "orders.jsonl"
    wrong = _changed(program, {"lambda _, order: order.amount > 0": "lambda order: order.amount > 0"})
    function = terminal.run(
        Command(line=TRY, exit_code=TopologyError.exit_code, shows=["filter calls its function with (key, value)", "app.py:"])
    )
    program.write_text(wrong, encoding="utf-8")
    right = _changed(data, {'"amount": 7.5': '"amount": "7,50"'})
    record = terminal.run(Command(line=TRY, exit_code=ConfigError.exit_code, shows=["orders.jsonl:3:", "$.amount"]))
    data.write_text(right, encoding="utf-8")
    return f"{function}\n{record}"


def planned(project: Path, broker: Broker) -> str:
    """What a start would do after a store has got another name."""
    servers = broker.bootstrap_servers
    environment = {"PENSTOCK_BOOTSTRAP_SERVERS": servers, "PENSTOCK_ADMIN_ADDRESS": "off", "PENSTOCK_LOG_LEVEL": "WARNING"}
    terminal = Terminal(directory=project, environment=environment)
    for topic in ("orders", "totals"):
        topics.create(servers, topic)
    records = [json.loads(line) for line in (project / "data" / "orders.jsonl").read_text(encoding="utf-8").splitlines()]
    topics.produce(servers, "orders", [topics.Sent(key=b"o", value=json.dumps(record["value"]).encode()) for record in records])
    _ = terminal.run(Command(line="penstock run app.py --until latest"))
    right = _changed(project / "app.py", {'store="totals"': 'store="spent"'})
    plan = terminal.run(Command(line="penstock plan app.py", exit_code=LOST, shows=["new", "lost", "renamed_from"]))
    (project / "app.py").write_text(right, encoding="utf-8")
    for topic in ("orders", "totals"):
        topics.delete(servers, topic)
    return plan


def watched(directory: Path, url: str) -> str:
    """A running application on one screen."""
    where = "" if url.endswith(f":{USUAL_PORT}") else f" --admin {url}"
    return Terminal(directory=directory, columns=120).run(
        Command(line=f"penstock top --once{where}", shows=["shop-orders", "running", "mean of the last", "orders-per-region"])
    )


def _changed(file: Path, changes: Mapping[str, str]) -> str:
    """Change a file, and return what it was."""
    before = text = file.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{file.name} has no {old!r}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return before
