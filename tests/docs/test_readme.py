"""The first example of the README and of the site's first page, with its test, run unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from verification.first_day.pages import read_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_example_and_its_test_pass_unchanged(tmp_path: Path, page: str) -> None:
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    files = dict(blocks)
    assert list(files) == ["app.py", "test_app.py"]
    for name, most in (("app.py", 15), ("test_app.py", 10)):
        lines = [line for line in files[name].splitlines() if line.strip()]
        assert len(lines) <= most, f"{name} has {len(lines)} lines"
        (tmp_path / name).write_text(files[name], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_quick_start_shows_what_the_first_steps_show() -> None:
    """Whose outputs are compared with those of the commands."""
    commands = [command for name in ("README.md", "docs/first-steps.md") for command in read_page(ROOT, name).commands()]
    shown = [(command.text.partition(" && ")[0], command.shown) for command in commands if command.shown is not None]
    assert [text.split()[1] for text, _ in shown] == ["new", "try", "new", "try"]
    assert shown[:2] == shown[2:]
