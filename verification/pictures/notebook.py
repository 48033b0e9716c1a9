"""Pictures of a notebook: `word_count.ipynb`, run with a broker, on pages of our own that resemble a notebook.

The outputs are what the objects give any notebook. The pages say that they are none.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.chromium import Chromium
from verification.harness.processes import ROOT, HarnessError, free_port
from verification.pictures.camera import PHONE, SCREEN, Camera, Window
from verification.pictures.kernel import Cell, Output, cells

NOTEBOOK = Path(__file__).with_name("word_count.ipynb")
LINES = 3_000
PATIENCE_S = 180
WIDTH = 900

_BROKER = "on a broker"
"""What the first cell says that needs one."""

_SPEECH = "to be or not to be that is the question whether tis nobler in the mind to suffer the slings and arrows"
_SAYS = (
    "Cells of word_count.ipynb, with what Penstock's objects give a notebook to show, on a page that make screenshots wrote. "
    "Your notebook shows the same in its own style."
)
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>A notebook</title><style>
body { margin: 0; padding: 24px 28px; background: #fff; color: #212121; font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; }
.cell, .output { display: grid; grid-template-columns: 56px minmax(0, 1fr); gap: 10px; margin-bottom: 10px; }
.prompt { font: 12px/1.6 "DejaVu Sans Mono", Menlo, monospace; color: #5c6bc0; text-align: right; padding-top: 9px; }
.output .prompt { color: #bf5b3d; padding-top: 2px; }
.code { margin: 0; padding: 8px 12px; border: 1px solid #e0e0e0; border-radius: 3px; background: #f7f7f7; overflow-x: auto;
  font: 13px/1.45 "DejaVu Sans Mono", Menlo, monospace; }
.code span { background: none !important; }
.shown { overflow-x: auto; }
.shown > pre { margin: 0; font: 13px/1.6 "DejaVu Sans Mono", Menlo, monospace; }
.words { margin: 18px 0 8px 66px; }
table { border-collapse: collapse; font-size: 12px; margin: 0 0 10px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 2px 8px; white-space: nowrap; }
th, td { text-align: right; padding: 4px 8px; white-space: nowrap; }
thead th { border-bottom: 1px solid #bdbdbd; }
tbody tr:nth-child(odd) { background: #f5f5f5; }
footer { margin: 22px 0 0 66px; color: #757575; font-size: 12px; }
</style></head><body>
"""


def pictures(broker: Broker, directory: Path, into: Path) -> list[Path]:
    """Take `notebook`, of the cells that need no broker, and `notebook-panel`, of the others."""
    for topic in ("lines", "counts"):
        topics.create(broker.bootstrap_servers, topic, partitions=2)
    topics.produce(broker.bootstrap_servers, "lines", spoken())
    notebook = numbered(cells(NOTEBOOK), check(run(broker.bootstrap_servers, directory)))
    first = next(number for number, cell in enumerate(notebook) if _BROKER in cell.source)
    with Chromium() as browser, tempfile.TemporaryDirectory(prefix="notebook-") as made:
        camera = Camera(browser, into)
        for name, part in {"notebook": notebook[:first], "notebook-panel": notebook[first:]}.items():
            file = Path(made) / f"{name}.html"
            file.write_text(page(part), encoding="utf-8")
            camera.open(file.as_uri(), Window(WIDTH, 100))
            camera.show_all(WIDTH)
            camera.take(name)
            camera.check(SCREEN, PHONE)
        return camera.taken


def spoken() -> Iterator[topics.Sent]:
    """Lines of some words each."""
    chance, words = random.Random(3), _SPEECH.split()
    for _ in range(LINES):
        yield topics.Sent(value=" ".join(chance.choices(words, k=6)).encode())


def run(bootstrap_servers: str, directory: Path) -> list[Output]:
    """Run the notebook in a process of its own; return what each cell shows."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PENSTOCK_BOOTSTRAP_SERVERS": bootstrap_servers,
        "PENSTOCK_STATE_DIR": str(directory / "state"),
        "PENSTOCK_ADMIN_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    command = [sys.executable, "-m", "verification.pictures.kernel", str(NOTEBOOK)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise HarnessError(f"{NOTEBOOK.name} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
    return [Output(*output) for output in json.loads(done.stdout.splitlines()[-1])]


def check(outputs: Sequence[Output]) -> Sequence[Output]:
    """Return the outputs; raise unless the cells show a drawing, tables, and an application that has read everything."""
    expected = {0: ("svg", "lines"), 1: ("html", "<td>not</td>"), 3: ("html", f"<td>records</td><td>{LINES:,}</td>")}
    for number, (kind, words) in expected.items():
        found = outputs[number]
        assert found.kind == kind, f"cell {number + 1} shows {found.kind}, not {kind}"
        assert words in found.content, f"cell {number + 1} does not show {words}:\n{found.content}"
    return outputs


class Shown(NamedTuple):
    """A cell of the page: its source, and, of code, the number and the output."""

    source: str
    number: int | None = None
    output: Output | None = None


def numbered(notebook: Sequence[Cell], outputs: Sequence[Output]) -> list[Shown]:
    """Give the cells with code their numbers and outputs, in order."""
    left = iter(enumerate(outputs, start=1))
    return [Shown(cell.source, *next(left)) if cell.is_code else Shown(cell.source) for cell in notebook]


def page(notebook: Sequence[Shown]) -> str:
    """Return cells as a page."""
    return f"{PAGE}{''.join(map(_cell, notebook))}<footer>{escape(_SAYS)}</footer></body></html>\n"


def _cell(shown: Shown) -> str:
    source, number, output = shown
    if output is None:
        return _words(source)
    cell = f'<div class="cell"><div class="prompt">In [{number}]:</div><pre class="code">{coloured(source)}</pre></div>'
    if output.kind is None:
        return cell
    content = f"<pre>{escape(output.content)}</pre>" if output.kind == "text" else output.content
    return f'{cell}<div class="output"><div class="prompt">Out[{number}]:</div><div class="shown">{content}</div></div>'


def _words(source: str) -> str:
    """Return a sentence in Markdown, which has nothing but names of code in it."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(source))
    return f'<p class="words">{text}</p>'


def coloured(source: str) -> str:
    """Return Python as HTML in colours."""
    console = Console(record=True, width=200, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Syntax(source, "python", theme="friendly", background_color="default", code_width=199))
    lines = console.export_html(theme=DEFAULT_TERMINAL_THEME, code_format="{code}", inline_styles=True)
    return "\n".join(line.rstrip() for line in lines.rstrip().splitlines())
