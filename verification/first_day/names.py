"""Public names that a reader finds nowhere: not in the reference, not on the page of the API, or without a docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock

REFERENCE, API = "docs/reference.md", "docs/api.md"
_LISTED = re.compile(r"^::: penstock\.([\w.]+)$", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)


def undocumented(root: Path) -> list[str]:
    """Return what is not documented, with what is missing."""
    reference, api = ((root / page).read_text(encoding="utf-8") for page in (REFERENCE, API))
    listed = _LISTED.findall(api)
    public = {name: _object(name) for name in sorted({*penstock.__all__, *listed})}
    return [
        *(f"{name}: not in {REFERENCE}" for name in missing_in(reference, penstock.__all__)),
        *(f"{name}: not in {API}" for name in sorted(set(penstock.__all__) - set(listed))),
        *(f"{part}: no docstring" for name, thing in public.items() for part in without_docstring(name, thing)),
    ]


def missing_in(page: str, names: list[str]) -> list[str]:
    """Return the names that the code of a page does not have."""
    code = " ".join(_CODE.findall(page))
    return [name for name in names if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", code)]


def without_docstring(name: str, thing: Any) -> Iterator[str]:
    """Yield the name if nothing describes it, and those of its public methods that have no docstring, here or in a base class."""
    if not inspect.isclass(thing):
        if not inspect.getdoc(thing):
            yield name
        return
    if (vars(thing).get("__doc__") or f"{thing.__name__}(").startswith(f"{thing.__name__}("):  # a dataclass describes its fields
        yield name
    for member, value in inspect.getmembers(thing):
        is_method = inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, property)
        if is_method and not member.startswith("_"):
            found = [vars(kind)[member] for kind in thing.__mro__ if member in vars(kind)]
            if not any(inspect.getdoc(each) for each in found):
                yield f"{name}.{member}"


def _object(name: str) -> Any:
    module, _, last = f"penstock.{name}".rpartition(".")
    return getattr(importlib.import_module(module), last)
