"""The checks beside the pages, and the figures: each can fail."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from verification.first_day import names
from verification.first_day.installation import constraints, provide_python, reader_environment
from verification.first_day.links import dead_in_file
from verification.first_day.mistakes import Answered, judged
from verification.first_day.names import missing_in, undocumented, without_docstring
from verification.first_day.outcome import Record, difference
from verification.first_day.pages import page_of
from verification.first_day.report import Checks, missed, report
from verification.harness.processes import ROOT

LOCK = """aiohttp==3.14.5 \\
    --hash=sha256:00 \\
    --hash=sha256:11
psycopg[binary]==3.3.8 ; implementation_name != 'pypy' \\
    --hash=sha256:22
"""


def test_constraints_are_the_locked_versions_and_the_wheel() -> None:
    assert constraints(LOCK, Path("/dist/penstock_streams-1.whl")).splitlines() == [
        "aiohttp==3.14.5",
        "psycopg==3.3.8 ; implementation_name != 'pypy'",
        "penstock-streams @ file:///dist/penstock_streams-1.whl",
    ]


def test_the_lock_of_the_project_becomes_constraints() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    made = [Requirement(line) for line in constraints(lock, Path("/dist/penstock_streams-1.whl")).splitlines()]
    assert len(made) == sum(line[:1].isalnum() for line in lock.splitlines()) + 1
    assert not any(requirement.extras for requirement in made)


def test_a_readers_environment_does_not_lead_to_the_checkout(tmp_path: Path) -> None:
    here = str(Path(sys.prefix) / "bin")
    given = {
        "PATH": f"{here}:/usr/bin",
        "PYTHONPATH": str(ROOT),
        "VIRTUAL_ENV": sys.prefix,
        "PENSTOCK_ENGINE": "spark",
        "PIP_INDEX_URL": "https://index.example",
        "https_proxy": "http://proxy.example",
        "HOME": "somewhere",
    }
    found = reader_environment(given, tmp_path)
    assert found["PATH"] == f"{tmp_path}:/usr/bin"
    assert found.keys() == {"PATH", "PIP_INDEX_URL", "https_proxy", "HOME", "BROWSER", "PYTHONUNBUFFERED"}


def test_python_is_the_one_below_the_environment(tmp_path: Path) -> None:
    provide_python(tmp_path / "bin")
    assert sys.base_prefix in (tmp_path / "bin" / "python").read_text()


@pytest.mark.parametrize(
    ("printed", "is_same"),
    [("a  \n b\n\n", True), ("a\nb\n", False), ("\na\n b", False), ("a\n b\nc", False), ("", False)],
)
def test_only_white_space_at_the_end_of_lines_may_differ(printed: str, is_same: bool) -> None:
    assert (difference("a\n b", printed) is None) == is_same


PAGE = "| mistake | what |\n|---|---|\n| a lambda with two lines | x |\n| no key | y |\n"


def test_a_mistake_is_right_if_all_its_tests_pass() -> None:
    passed = "tests/unit/mistakes/test_a.py::test_a_lambda_with_two_lines[a b] PASSED [ 10%]\n"
    other = "tests/jvm/mistakes/test_b.py::TestIt::test_no_key PASSED\ntests/jvm/mistakes/test_b.py::test_no_page PASSED\n"
    assert judged(PAGE, passed + other) == Answered(of=2, wrong=())


@pytest.mark.parametrize("outcome", ["FAILED", "ERROR", "SKIPPED", "XFAIL"])
def test_a_mistake_is_wrong_if_one_of_its_tests_does_not_pass_or_there_is_none(outcome: str) -> None:
    output = f"t/test_a.py::test_a_lambda_with_two_lines[1] PASSED\nt/test_a.py::test_a_lambda_with_two_lines[2] {outcome}\n"
    found = judged(PAGE, output)
    assert found.wrong == ("a lambda with two lines", "no key")
    assert (found.right, found.of) == (0, 2)


def test_links_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "here.md").write_text(
        "[a](here.md#b) [b](#c) [c](https://a.example/x) [d](../README.md) [e](gone.md#x) `[f](f.md)`\n```\n[g](g.md)\n```\n"
    )
    assert list(dead_in_file(tmp_path, "docs/here.md")) == [
        "docs/here.md: the link ../README.md leads nowhere",
        "docs/here.md: the link gone.md#x leads nowhere",
    ]


class Described:
    """Described."""

    def told(self) -> None:
        """Told."""


class Heir(Described):
    """An heir."""

    def told(self) -> None: ...

    def untold(self) -> None: ...

    @property
    def unseen(self) -> int:
        return 1

    def _inner(self) -> None: ...


@dataclass
class Bare:
    field: int


def test_what_has_no_docstring_is_named() -> None:
    assert list(without_docstring("Heir", Heir)) == ["Heir.unseen", "Heir.untold"]
    assert list(without_docstring("Bare", Bare)) == ["Bare"]
    assert list(without_docstring("f", lambda: None)) == ["f"]


def test_names_must_be_in_code_on_the_page() -> None:
    assert missing_in("`App` and `KStream.filter(x)`, but KTable", ["App", "KStream", "KTable", "filter"]) == ["KTable", "filter"]


def test_every_public_name_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert undocumented(ROOT) == []
    (tmp_path / "docs").mkdir()
    for page in (names.REFERENCE, names.API):
        (tmp_path / page).write_text((ROOT / page).read_text().replace("bounded_disorder", "bounded"))
    monkeypatch.setattr(names, "_object", lambda _: Described)
    assert undocumented(tmp_path) == [f"bounded_disorder: not in {page}" for page in (names.REFERENCE, names.API)]


START = """```console
$ pip install penstock-streams
$ penstock try a
$ penstock dev a
```

```python
x = 1
```
"""


def followed(*seconds: float) -> Record:
    record = Record(page_of("README.md", START))
    for command, each in zip(record.page.commands(), seconds, strict=True):
        record.took(command, each)
    return record


def test_the_report_of_a_good_day() -> None:
    found = report([followed(50, 2, 7)], Checks(undocumented=(), mistakes=Answered(of=65, wrong=()), dead_links=()))
    del found["commands"]
    assert found == {
        "commands_to_first_output": 2,
        "seconds": 52,
        "commands_to_exactly_once": 1,
        "seconds_to_exactly_once": 7,
        "code_blocks": 2,
        "failed": 0,
        "mistakes": {"right": 65, "of": 65},
        "dead_links": 0,
        "undocumented_names": 0,
        "missed": [],
        "problems": [],
    }


def test_the_report_of_a_bad_day() -> None:
    record = followed(119, 2, 7)
    block = record.page.blocks[0]
    record.fails(block, 3, "no")
    record.fails(block, 4, "no again")
    checks = Checks(undocumented=["f: no docstring"], mistakes=Answered(of=2, wrong=("no key",)), dead_links=["a: the link b"])
    found = report([record], checks)
    assert found["failed"] == 1
    assert found["problems"] == [
        "README.md:3: no",
        "README.md:4: no again",
        "mistake without its answer: no key",
        "a: the link b",
        "f: no docstring",
    ]
    assert len(found["missed"]) == 5


def test_what_was_left_out_is_neither_met_nor_missed() -> None:
    found = report([followed(1, 1, 1)], Checks(undocumented=()))
    assert "mistakes" not in found
    assert "dead_links" not in found
    assert found["missed"] == []
    assert missed({**found, "mistakes": {"right": 0, "of": 0}}) == ["mistakes: 0 of 0 right"]
    assert missed({**found, "code_blocks": 0}) == ["the pages have no code blocks"]
