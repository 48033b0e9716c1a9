"""The figures of the house against their ceilings: no new import cycles, nothing has grown; and how they are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tidy import ceilings, house
from tests.tidy.house import Module, Named, closed, grown

HOUSE = house.modules()


def test_no_modules_import_each_other() -> None:
    complaints = closed(house.circles(HOUSE), ceilings.CIRCLES)
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_module_has_grown() -> None:
    found = [Named(module.lines, name) for name, module in HOUSE.items()]
    complaints = grown(found, ceilings.LINES_GOAL, ceilings.LINES, "move its second subject to another module.")
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_function_takes_more_parameters() -> None:
    found = [each for module in HOUSE.values() for each in house.parameters(module)]
    cure = "combine those that belong together into one value."
    complaints = grown(found, ceilings.PARAMETERS_GOAL, ceilings.PARAMETERS, cure)
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_class_has_grown() -> None:
    found = [each for module in HOUSE.values() for each in house.methods(module)]
    cure = "move its second subject to another class."
    complaints = grown(found, ceilings.METHODS_GOAL, ceilings.METHODS, cure)
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_more_checks_are_disabled() -> None:
    found = house.figures(HOUSE)
    assert found.type_ignores <= ceilings.TYPE_IGNORES, "one more `type: ignore`. Cure: say the type, or narrow it."
    assert found.noqas <= ceilings.NOQAS, "one more `noqa`. Cure: satisfy the rule."


def module(name: str, text: str) -> Module:
    return Module(name, text)


class TestCounting:
    def test_parameters(self) -> None:
        text = (
            "def f(a, /, b, *rest, c=1, **more): ...\n"
            "class C:\n  def __init__(self, a): ...\n  @classmethod\n  def of(cls): ...\n"
            "  def outer(self):\n    async def inner(a, b): ...\n"
            "@dataclass\nclass D:\n  a: int\n  b: int\n"
        )
        assert list(house.parameters(module("penstock.m", text))) == [
            (5, "penstock.m.f"),
            (1, "penstock.m.C.__init__"),
            (0, "penstock.m.C.of"),
            (0, "penstock.m.C.outer"),
            (2, "penstock.m.C.outer.inner"),
        ]

    def test_methods(self) -> None:
        text = (
            "class C:\n  x = 1\n  @overload\n  def f(self, a: int) -> int: ...\n  @overload\n  def f(self, a: str) -> str: ...\n"
            "  def f(self, a): ...\n  @property\n  def g(self): ...\n  @g.setter\n  def g(self, value): ...\n"
            "  async def h(self): ...\n  class Inner:\n    def i(self): ...\n"
        )
        assert list(house.methods(module("penstock.m", text))) == [(3, "penstock.m.C"), (1, "penstock.m.C.Inner")]

    @pytest.mark.parametrize(
        "back",
        [
            "from penstock.a.one import x",
            "import penstock.a.one",
            "from penstock.a import one",
            "if TYPE_CHECKING:\n  from penstock.a.one import x",
            "def f():\n  from penstock.a.one import x",
        ],
    )
    def test_circles(self, back: str) -> None:
        texts = {"penstock.a": "", "penstock.a.one": "from penstock.a.two import y", "penstock.a.two": back, "penstock.b": back}
        found = house.circles({name: module(name, text) for name, text in texts.items()})
        assert found == [("penstock.a.one", "penstock.a.two")]

    def test_a_package_that_exports_a_name_is_part_of_a_circle(self) -> None:
        texts = {"penstock.a": "from penstock.a.one import x", "penstock.a.one": "from penstock.a import x"}
        found = house.circles({name: module(name, text) for name, text in texts.items()})
        assert found == [("penstock.a", "penstock.a.one")]

    def test_disabled_checks(self) -> None:
        text = "a = 1  # type: ignore[x]  # noqa: F\n# ruff: noqa: F\nb = '# noqa # type: ignore'\n# noqable\n"
        assert house.switched_off(text) == (1, 2)

    def test_coverage(self, tmp_path: Path) -> None:
        report = tmp_path / "coverage.json"
        assert house.coverage(report) is None
        report.write_text(json.dumps({"totals": {"percent_covered": 96.1234}}))
        assert house.coverage(report) == 96.12


class TestCeilings:
    def test_what_exceeds_its_ceiling_is_named_with_the_cure(self) -> None:
        found = [Named(9, "a"), Named(8, "b"), Named(12, "c"), Named(11, "d")]
        assert grown(found, 8, {"c": 12, "d": 10}, "split it.") == [
            "a has 9, at most 8. Cure: split it.",
            "d has 11, at most 10. Cure: split it.",
        ]

    def test_what_has_reached_the_goal_must_be_removed(self) -> None:
        assert [line.split(".")[0] for line in grown([Named(8, "a")], 8, {"a": 9, "gone": 9}, "")] == [
            "a no longer exceeds 8",
            "gone no longer exceeds 8",
        ]

    def test_unknown_and_outdated_circles_are_named(self) -> None:
        assert closed([("a", "b")], [("a", "b")]) == []
        new, past = closed([("a", "b")], [("c", "d")])
        assert new.startswith("a, b import each other. Cure: ")
        assert past.startswith("c, d no longer import each other. Cure: ")


def test_the_report_is_written_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(house, "REPORTS", tmp_path / "reports")
    house.main()
    found = json.loads((tmp_path / "reports" / "house.json").read_text())
    assert found["modules"] == len(HOUSE)
    assert found["coverage"] is None
    assert f"max_methods    {found['max_methods']} (goal 20)\n" in capsys.readouterr().out
