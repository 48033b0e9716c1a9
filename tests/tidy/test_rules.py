"""Each house rule finds what it forbids, and accepts similar code that is allowed."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.tidy import rules
from tests.tidy.rules import Rule, SourceFile

PRODUCT = "src/penstock/lanes/bound_shard.py"
LONG_BODY = "\n".join(f"    x{n} = {n}" for n in range(70))
DOCSTRING = '    """' + "long\n" * 100 + '    """'

BREAKS = [
    (rules.module_is_short, PRODUCT, "x = 1\n" * 801),
    (rules.functions_are_short, PRODUCT, f"def f():\n{LONG_BODY}\n"),
    (rules.functions_are_short, PRODUCT, f"class C:\n  async def f(self):\n{LONG_BODY}\n"),
    (rules.module_says_what_it_is, PRODUCT, "import os\n"),
    (rules.module_has_a_name_of_its_own, "src/penstock/state/_utils.py", ""),
    (rules.module_has_a_name_of_its_own, "verification/conformance/core/cases.py", ""),
    (rules.no_notes_to_self, "README.md", "TO" + "DO: write"),
    (rules.no_notes_to_self, PRODUCT, "# FIX" + "ME"),
    (rules.product_does_not_print, PRODUCT, "print('x')"),
    (rules.product_runs_only_its_own_code, PRODUCT, "eval('1')"),
    (rules.product_runs_only_its_own_code, PRODUCT, "import pickle\npickle.loads(b'')"),
    (rules.product_runs_only_its_own_code, PRODUCT, "from cloudpickle import loads"),
    (rules.product_runs_only_its_own_code, PRODUCT, "__import__('os')"),
    (rules.imports_name_what_they_take, PRODUCT, "from os import *"),
    (rules.product_asks_for_kinds, PRODUCT, "hasattr(right, '_place')"),
    (rules.product_asks_for_kinds, PRODUCT, "getattr(right, '_place', None)"),
    (rules.no_path_of_one_machine, "docs/guide.md", "see /" + "work/main"),
    (rules.no_path_of_one_machine, PRODUCT, "STATE = '/" + "tmp/state'"),
    (rules.no_registry, "Makefile", "https://py" + "pi.org/simple"),
    (rules.no_registry, "tools/pyright/package-lock.json", "https://registry.npm" + "js.org/pyright.tgz"),
    (rules.no_registry, "requirements.lock", "--extra-index" + "-url somewhere"),
    (rules.no_registry, "requirements.lock", "a @ https:/" + "/example.com/a.whl"),
    (rules.no_registry, "deploy/requirements-local.lock", "a @ https:/" + "/example.com/a.whl"),
]

KEEPS = [
    (rules.module_is_short, PRODUCT, "x = 1\n" * 800),
    (rules.module_is_short, "src/penstock/dsl/handles.py", "x = 1\n" * 2000),
    (rules.functions_are_short, PRODUCT, f"def f():\n{DOCSTRING}\n    return 1\n"),
    (rules.module_says_what_it_is, "src/penstock/state/__init__.py", ""),
    (rules.module_has_a_name_of_its_own, "src/penstock/state/overlay.py", ""),
    (rules.no_notes_to_self, PRODUCT, "# a mastodon"),
    (rules.product_does_not_print, "verification/conformance/report.py", "print('x')"),
    (rules.product_does_not_print, PRODUCT, "stream.print('x')"),
    (rules.product_runs_only_its_own_code, PRODUCT, "import cloudpickle\ncloudpickle.dumps(1)"),
    (rules.product_runs_only_its_own_code, PRODUCT, "serde.loads(b'')"),
    (rules.product_asks_for_kinds, PRODUCT, "getattr(function, '__qualname__', '')"),
    (rules.product_asks_for_kinds, PRODUCT, "getattr(config, name)"),
    (rules.product_asks_for_kinds, "tests/unit/dsl/test_streams.py", "getattr(stream, '_place')"),
    (rules.no_path_of_one_machine, PRODUCT, "a/" + "work/b, ${here}/" + "tmp/c and net" + "work/x"),
    (rules.no_registry, "Makefile", "uv pip compile --no-emit-index" + "-url"),
    (rules.no_registry, "requirements.lock", "a==1 \\\n    --hash=sha256:00"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKS)
def test_finds_a_violation(rule: Rule, path: str, text: str) -> None:
    complaints = list(rule(SourceFile(PurePosixPath(path), text)))
    assert complaints
    assert all("Cure: " in complaint for complaint in complaints)


@pytest.mark.parametrize(("rule", "path", "text"), KEEPS)
def test_accepts_allowed_code(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(SourceFile(PurePosixPath(path), text)))


def test_every_rule_has_a_violation_here() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(rules.RULES)
