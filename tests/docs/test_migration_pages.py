"""The pages for those who come from elsewhere: their examples run, and generated tables are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import Config
from tools import migration_tables
from verification.conformance.parity.reflection import load
from verification.conformance.parity.settings import SETTINGS

PAGES = sorted((Path(__file__).parents[2] / "docs" / "migrating").glob("*.md"))
TEXT = migration_tables.PAGE.read_text(encoding="utf-8")


def test_all_pages_are_here() -> None:
    assert [page.name for page in PAGES] == ["from-faust.md", "from-quix.md", "from-spark.md", "kafka-streams.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs(page: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(page), "exec", dont_inherit=True), names)


def test_the_tables_are_those_of_the_code() -> None:
    assert migration_tables.filled(TEXT) == TEXT, "run `python -m tools.migration_tables`"


def test_every_verb_and_every_setting_is_there() -> None:
    _, _, tables = TEXT.partition("\n## Verbs\n")
    said = set(re.findall(r"^\| `([\w.]+)` \| `(?:new )?(?:\w+\.)?(\w+)` \|", tables, re.MULTILINE))
    for method in load():
        if not method.is_object_protocol:
            owner, simple = method.owner.removeprefix("kstream."), method.owner.rpartition(".")[2]
            assert (owner, simple if method.name == "new" else method.name) in said
    assert {name for name in SETTINGS if f"\n| `{name}` |" not in TEXT} == set()


def test_stale_tables_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT.replace("| `state.dir` |", "| `state.directory` |"), encoding="utf-8")
    monkeypatch.setattr(migration_tables, "PAGE", page)
    assert migration_tables.main(["--check"]) == 1
    assert migration_tables.main([]) == 0
    assert migration_tables.main(["--check"]) == 0
    assert page.read_text(encoding="utf-8") == TEXT


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(AssertionError, match="mark behind its verbs"):
        migration_tables.filled(TEXT.replace("<!-- end of verbs -->", ""))


def test_settings_that_the_pages_name_exist() -> None:
    known = set(Config.__dataclass_fields__) | {name.removesuffix("_ms") for name in Config.__dataclass_fields__}
    for page in PAGES:
        for name in re.findall(r"`(\w+) = ", page.read_text(encoding="utf-8")):
            assert name in known, f"{page.name}: there is no setting {name!r}"
