"""An extension of griffe, which reads the docstrings for the site: it prepares each as `with_examples` says.

Only the site's own environment has griffe, so that the class is made without its types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tools.site_hooks import with_examples


def _on_instance(self: object, *, obj: Any, **_: object) -> None:
    if obj.docstring is not None:
        obj.docstring.value = with_examples(obj.docstring.value)


ExamplesAsCode: Any = type("ExamplesAsCode", (import_module("griffe").Extension,), {"on_instance": _on_instance})
