"""The house in figures. `python -m tests.tidy.house` writes them to `reports/house.json` and prints them.

Tests compare them with `ceilings`. Everything is read from the source text of `src/penstock`; nothing is imported.

- modules: files, `__init__` included; all lines count, including blank ones and docstrings.
- parameters: of every `def`, constructors and nested functions included; `*` and `**` count one each, `self` and `cls` none. The
  generated `__init__` of a dataclass, a named tuple or a struct does not count, and neither do lambdas.
- methods: of every class, by distinct name: an overloaded method counts once, and so does a property with its setter; nested and
  inherited ones do not count.
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


def parameters(module: Module) -> Iterator[Named]:
    """Every function with the number of its parameters."""
    for path, node in _definitions(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            is_bound = bool(names) and names[0] in {"self", "cls"}
            figure = len(names) - is_bound + (given.vararg is not None) + (given.kwarg is not None)
            yield Named(figure, f"{module.name}.{path}")


def methods(module: Module) -> Iterator[Named]:
    """Every class with the number of its methods."""
    for path, node in _definitions(module.tree):
        if isinstance(node, ast.ClassDef):
            names = {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
            yield Named(len(names), f"{module.name}.{path}")


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
    max_parameters: int
    max_methods: int
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
        max_parameters=max(found.figure for module in house.values() for found in parameters(module)),
        max_methods=max(found.figure for module in house.values() for found in methods(module)),
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
    goals = {"max_lines": ceilings.LINES_GOAL, "max_parameters": ceilings.PARAMETERS_GOAL, "max_methods": ceilings.METHODS_GOAL}
    for name, figure in found._asdict().items():
        goal = {**goals, "circles": 0}.get(name)
        sys.stdout.write(f"{name:15}{'none' if figure is None else figure}" + ("" if goal is None else f" (goal {goal})") + "\n")


if __name__ == "__main__":
    main()
