"""The house in figures. `python -m tests.tidy.house` writes them to `reports/house.json` and prints them.

Tests compare them with `ceilings`. Everything is read from the source text of `src/penstock`; nothing is imported.

- modules: files, `__init__` included; all lines count, including blank ones and docstrings.
- rooms: packages of `penstock`, without those on the floor of the vocabulary, which every room uses.
- imports: the modules of the product that a module imports, wherever in the file.
- attributes: what the objects of a class are given as `self.name = …`, inherited ones included. Values do not count (frozen
  dataclasses, named tuples, structs): what they hold is what they are.
- circles: groups of modules that import each other, directly or through others, in one room or several. An import counts
  wherever it is: at the top, under `TYPE_CHECKING`, in a function. Importing a name from a package imports its `__init__`.
- type ignores and noqas: comments that disable a check, in all Python files of the repository.
- coverage: of lines and branches in percent, from the last `make coverage`; null without one.
"""

from __future__ import annotations

import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.tidy import ceilings
from tests.tidy.repository import ROOT, files

REPORTS = ROOT / "reports"
VOCABULARY = {"errors", "letters", "metrics", "timing"}
"""Packages of words that every room uses."""


class Named(NamedTuple):
    """A figure of something, with its name."""

    figure: int
    name: str


@dataclass(frozen=True)
class Module:
    """One file of the product."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def modules(source: Path = ROOT / "src") -> dict[str, Module]:
    """All modules of the product by their dotted name."""
    found = {}
    for path in sorted((source / "penstock").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path.read_text(encoding="utf-8"))
    return found


def rooms(house: Iterable[str]) -> set[str]:
    """The rooms of the house."""
    parts = [name.split(".") for name in house]
    return {names[1] for names in parts if names[2:]} - VOCABULARY


def attributes(house: Mapping[str, Module]) -> Iterator[Named]:
    """Every class whose objects are no values, with the number of their attributes."""
    classes = {
        f"{module.name}.{path}": node
        for module in house.values()
        for path, node in _definitions(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    by_name: dict[str, str] = {}
    for name in classes:
        by_name.setdefault(name.rpartition(".")[2], name)
    for name, node in classes.items():
        if not _is_value(node):
            yield Named(len(_attributes(node, classes, by_name)), name)


def _attributes(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], by_name: Mapping[str, str]) -> set[str]:
    found = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }
    for base in node.bases:
        name = by_name.get(_last_name(base))
        if name is not None and classes[name] is not node:
            found |= _attributes(classes[name], classes, by_name)
    return found


def _is_value(node: ast.ClassDef) -> bool:
    is_frozen = any("frozen=True" in ast.unparse(each) for each in (*node.decorator_list, *node.keywords))
    return is_frozen or any(_last_name(base) in _VALUES for base in node.bases)


_VALUES = {"NamedTuple", "Struct", "TypedDict", "Protocol", "Enum"}


def _last_name(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST, path: str = "") -> Iterator[tuple[str, Definition]]:
    """All classes and functions, including nested ones, each with its dotted path."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{path}.{child.name}" if path else child.name
            yield inner, child
            yield from _definitions(child, inner)
        else:
            yield from _definitions(child, path)


def imports(module: Module, known: Mapping[str, object]) -> set[str]:
    """The modules of the product that a module imports."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else str(node.module) for name in names}
    return found - {module.name}


def circles(house: Mapping[str, Module]) -> list[tuple[str, ...]]:
    """Groups of modules that import each other."""
    graph = {name: imports(module, house) for name, module in house.items()}
    reached = {name: _reached(graph, name) for name in graph}
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in graph}
    return sorted(group for group in groups if len(group) > 1)


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def switched_off(text: str) -> tuple[int, int]:
    """The number of comments of a file that disable the type checker, and of those that disable a lint rule."""
    if "noqa" not in text and "type: ignore" not in text:
        return 0, 0  # most files; tokenizing is slow
    comments = [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    return sum("type: ignore" in comment for comment in comments), sum(bool(_NOQA.search(comment)) for comment in comments)


_NOQA = re.compile(r"# (ruff: |flake8: )?noqa\b")


class Figures(NamedTuple):
    """The content of the report."""

    modules: int
    median_lines: float
    max_lines: int
    rooms: int
    max_imports: int
    max_attributes: int
    circles: int
    type_ignores: int
    noqas: int
    coverage: float | None


def figures(house: Mapping[str, Module]) -> Figures:
    """The current figures of the house."""
    lines = [module.lines for module in house.values()]
    off = [switched_off(file.text) for file in files() if file.is_python]
    return Figures(
        modules=len(house),
        median_lines=statistics.median(lines),
        max_lines=max(lines),
        rooms=len(rooms(house)),
        max_imports=max(len(imports(module, house)) for module in house.values()),
        max_attributes=max(found.figure for found in attributes(house)),
        circles=len(circles(house)),
        type_ignores=sum(ignores for ignores, _ in off),
        noqas=sum(noqas for _, noqas in off),
        coverage=coverage(REPORTS / "coverage.json"),
    )


def coverage(report: Path) -> float | None:
    """The percentage of a coverage report, if there is one."""
    return round(json.loads(report.read_text(encoding="utf-8"))["totals"]["percent_covered"], 2) if report.is_file() else None


def grown(found: Iterable[Named], goal: int, known: Mapping[str, int], cure: str) -> list[str]:
    """Complaints about what exceeds its known figure or the goal, and about known names that no longer exceed the goal."""
    most: dict[str, int] = {}
    for figure, name in found:
        most[name] = max(figure, most.get(name, 0))
    beyond = [(name, figure, known.get(name, goal)) for name, figure in most.items() if figure > known.get(name, goal)]
    past = [name for name in known if most.get(name, 0) <= goal]
    return [f"{name} has {figure}, at most {ceiling}. Cure: {cure}" for name, figure, ceiling in beyond] + [
        f"{name} no longer exceeds {goal}. Cure: remove it from tests/tidy/ceilings.py." for name in past
    ]


def closed(found: Iterable[tuple[str, ...]], known: Iterable[tuple[str, ...]]) -> list[str]:
    """Complaints about unknown circles, and about known ones that no longer exist."""
    now, before = set(found), set(known)
    return [
        f"{', '.join(circle)} import each other. Cure: move what both sides need below them, or declare a protocol for it there."
        for circle in sorted(now - before)
    ] + [
        f"{', '.join(circle)} no longer import each other. Cure: remove them from CIRCLES in tests/tidy/ceilings.py."
        for circle in sorted(before - now)
    ]


def main() -> None:
    """Write the report, and print it."""
    found = figures(modules())
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / "house.json").write_text(json.dumps(found._asdict(), indent=2) + "\n", encoding="utf-8")
    goals = {
        "max_lines": ceilings.LINES_GOAL,
        "rooms": ceilings.ROOMS_GOAL,
        "max_imports": ceilings.IMPORTS_GOAL,
        "max_attributes": ceilings.ATTRIBUTES_GOAL,
        "circles": 0,
    }
    for name, figure in found._asdict().items():
        goal = goals.get(name)
        sys.stdout.write(f"{name:15}{'none' if figure is None else figure}" + ("" if goal is None else f" (goal {goal})") + "\n")


if __name__ == "__main__":
    main()
