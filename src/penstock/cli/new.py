"""`penstock new`: creates a project from the templates in `scaffold/`, and overwrites nothing."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from penstock.cli.screen import output_console, shown
from penstock.errors import ConfigError
from penstock.version import DISTRIBUTION, __version__

_TEMPLATES = Path(__file__).parent / "scaffold"
_SUFFIX = ".template"
_DOT = "dot-"
"""What names of templates begin with whose files begin with a dot."""
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")
"""Names that Kafka, Kubernetes and Docker all accept."""


def create_project(name: str, parent: Path) -> list[Path]:
    """Create the directory `name` with all files of a project, and return their paths in it."""
    if not _NAME.fullmatch(name):
        rule = "use up to 50 lower-case letters, digits and '-', beginning with a letter and not ending with '-'"
        raise ConfigError(f"new: invalid name {name[:50]!a}: {rule}.")
    directory = parent / name
    try:
        directory.mkdir()
    except FileExistsError:
        raise ConfigError(f"new: {str(directory)!r} exists. Choose another name, or remove it first.") from None
    except OSError as error:
        raise ConfigError(f"new: cannot create {str(directory)!r}: {error.strerror}.") from None
    values = {"name": name, "distribution": DISTRIBUTION, "version": __version__}
    created = []
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        path = _target(template.relative_to(_TEMPLATES))
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        text = Template(template.read_text(encoding="utf-8")).substitute(values)
        (directory / path).write_text(text, encoding="utf-8")
        created.append(path)
    return created


def print_next_steps(name: str) -> None:
    """Print what to do with a new project."""
    console = output_console()
    console.print(shown(f"Created {name}. Next:"))
    for step in (f"cd {name}", "penstock try app.py --input orders=data/orders.jsonl", "pytest"):
        console.print(shown(f"  {step}", style="bold"))


def _target(template: Path) -> Path:
    """Return the path of a template's file: `dot-github/ci.yml.template` is that of `.github/ci.yml`."""
    parts = [f".{part.removeprefix(_DOT)}" if part.startswith(_DOT) else part for part in template.parts]
    return Path(*parts).with_name(parts[-1].removesuffix(_SUFFIX))
