"""The house rules as functions: each takes one file and yields what is wrong with it, with the cure.

Patterns are written with a one-letter class, as in `[p]rint`, so that this file does not break its own rules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

MODULE_LINES_MAX = 800
MODULE_LINES_USUAL = 400
FUNCTION_LINES_MAX = 70

VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "manager", "base", "core", "internal", "common", "misc"})


@dataclass(frozen=True)
class SourceFile:
    """A text file of the repository, by its path from the root."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def is_product(self) -> bool:
        return self.is_python and self.path.parts[:2] == ("src", "penstock")

    def at(self, line: int, complaint: str) -> str:
        return f"{self.path}:{line}: {complaint}"


Rule = Callable[[SourceFile], Iterator[str]]


def module_is_short(file: SourceFile) -> Iterator[str]:
    if not file.is_python or file.path.parts[:3] == ("src", "penstock", "dsl"):  # the DSL is mostly docstrings
        return
    lines = len(file.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield file.at(lines, f"{lines} lines, at most {MODULE_LINES_MAX}. Cure: move its second subject to another module.")


def functions_are_short(file: SourceFile) -> Iterator[str]:
    if not file.is_python:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = code_lines(node)
            if lines > FUNCTION_LINES_MAX:
                cure = "Cure: extract a part that has a name."
                yield file.at(node.lineno, f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}. {cure}")


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def module_says_what_it_is(file: SourceFile) -> Iterator[str]:
    if file.is_python and file.tree.body and not ast.get_docstring(file.tree):
        yield file.at(1, "no module docstring. Cure: open with one to three lines: what it is, what it is not.")


def module_has_a_name_of_its_own(file: SourceFile) -> Iterator[str]:
    if not file.is_python:
        return
    for part in file.path.with_suffix("").parts:
        if part.strip("_") in VAGUE_NAMES:
            yield file.at(1, f"{part!r} says nothing. Cure: name it after the noun it is about; Kafka's noun if Kafka has one.")


def no_notes_to_self(file: SourceFile) -> Iterator[str]:
    for line, text in matches(file, r"\b([T]ODO|[F]IXME|[X]XX)\b"):
        yield file.at(line, f"{text}. Cure: do it, or open an issue instead.")


def product_does_not_print(file: SourceFile) -> Iterator[str]:
    if not file.is_product:
        return
    for node in calls(file):
        if called_name(node) == "print":
            yield file.at(node.lineno, "prints. Cure: return the text, or log it.")


UNPICKLING = "Cure: decode data with a serde; unpickling can run any code."
UNSAFE = {
    "eval": "Cure: write the code.",
    "exec": "Cure: write the code.",
    "__import__": "Cure: import it at the top of the module.",
    "pickle.load": UNPICKLING,
    "pickle.loads": UNPICKLING,
    "pickle.Unpickler": UNPICKLING,
    "cloudpickle.load": UNPICKLING,
    "cloudpickle.loads": UNPICKLING,
    "shelve.open": UNPICKLING,
    "marshal.load": UNPICKLING,
    "marshal.loads": UNPICKLING,
    "yaml.load": UNPICKLING,
}


ITS_OWN = {
    ("src/penstock/engines/serving.py", "cloudpickle.loads"),
}
"""Bytes that the application's own driver has pickled, and that reach a slot over a connection that only the two have."""


def product_runs_only_its_own_code(file: SourceFile) -> Iterator[str]:
    if not file.is_product:
        return
    used = [(node.lineno, called_name(node)) for node in calls(file)]
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom):
            used += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    for line, name in used:
        if name in UNSAFE and (str(file.path), name) not in ITS_OWN:
            yield file.at(line, f"uses {name}. {UNSAFE[name]}")


def imports_name_what_they_take(file: SourceFile) -> Iterator[str]:
    if not file.is_python:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield file.at(node.lineno, f"imports everything from {node.module}. Cure: import names.")


def product_asks_for_kinds(file: SourceFile) -> Iterator[str]:
    if not file.is_product:
        return
    for node in calls(file):
        if called_name(node) in {"hasattr", "getattr", "setattr", "delattr"} and len(node.args) > 1 and _is_private(node.args[1]):
            said = ast.unparse(node.args[1])
            cure = "Cure: declare a base class or a protocol, and use isinstance."
            yield file.at(node.lineno, f"uses a private name as text, {said}. {cure}")


def _is_private(node: ast.expr) -> bool:
    name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def no_path_of_one_machine(file: SourceFile) -> Iterator[str]:
    for line, text in matches(file, r"(?<![\w.$}~*/-])/(?:[w]ork|[r]oot|[h]ome|[t]mp|[U]sers)/[\w.]*"):
        yield file.at(line, f"{text} is a path of one machine. Cure: take it as an argument, or use tmp_path or tempfile.")


def no_registry(file: SourceFile) -> Iterator[str]:
    hosts = r"([p]ypi\.org|[p]ythonhosted\.org|repo1?\.[m]aven|[m]vnrepository|(?<!no-emit-)[i]ndex-url|[f]ind-links|[n]pmjs\.)"
    if file.path.suffix == ".lock" or file.path.name == "jars.sha256":
        hosts = r"://|--[a-gi-z][\w-]*|" + hosts  # nothing but pins and their --hash
    for line, text in matches(file, hosts):
        yield file.at(
            line,
            f"{text} names a download location. Cure: remove it; only hashes belong here.",
        )


def matches(file: SourceFile, pattern: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(file.text.splitlines(), start=1):
        for match in re.finditer(pattern, line):
            yield number, match.group()


def calls(file: SourceFile) -> Iterator[ast.Call]:
    return (node for node in ast.walk(file.tree) if isinstance(node, ast.Call))


def called_name(node: ast.Call) -> str:
    return ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""


RULES: tuple[Rule, ...] = (
    module_is_short,
    functions_are_short,
    module_says_what_it_is,
    module_has_a_name_of_its_own,
    no_notes_to_self,
    product_does_not_print,
    product_runs_only_its_own_code,
    imports_name_what_they_take,
    product_asks_for_kinds,
    no_path_of_one_machine,
    no_registry,
)
