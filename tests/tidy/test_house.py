"""The figures of the house against their ceilings: no import cycles, no more coupling; and how they are counted."""

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


def test_there_are_no_more_rooms() -> None:
    found = house.rooms(HOUSE)
    assert len(found) <= ceilings.ROOMS_GOAL, f"{len(found)} rooms. Cure: put what is new into one of {', '.join(sorted(found))}."


def test_no_module_imports_more() -> None:
    found = [Named(len(house.imports(module, HOUSE)), name) for name, module in HOUSE.items()]
    cure = "let what it puts together be put together by a module below it."
    complaints = grown(found, ceilings.IMPORTS_GOAL, ceilings.IMPORTS, cure)
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_object_has_more_attributes() -> None:
    cure = "give those that belong together an object of their own."
    complaints = grown(house.attributes(HOUSE), ceilings.ATTRIBUTES_GOAL, ceilings.ATTRIBUTES, cure)
    assert not complaints, "\n" + "\n".join(complaints)


def test_no_more_checks_are_disabled() -> None:
    found = house.figures(HOUSE)
    assert found.type_ignores <= ceilings.TYPE_IGNORES, "one more `type: ignore`. Cure: say the type, or narrow it."
    assert found.noqas <= ceilings.NOQAS, "one more `noqa`. Cure: satisfy the rule."


def module(name: str, text: str) -> Module:
    return Module(name, text)


class TestCounting:
    def test_rooms(self) -> None:
        assert house.rooms(["penstock", "penstock.app", "penstock.a", "penstock.a.b", "penstock.errors.c"]) == {"a"}

    def test_attributes(self) -> None:
        text = (
            "class A(other.B[int]):\n  def f(self):\n    self.x = self.y = 1\n    self.z: int = 2\n"
            "    self.x += 1\n    one.w = 3\n"
            "class B:\n  def g(self):\n    self.u, self.x = 1, 2\n    print(self.v)\n"
            "class C(NamedTuple):\n  a: int\n"
            "@dataclass(frozen=True)\nclass D:\n  a: int\n"
        )
        found = list(house.attributes({"penstock.m": module("penstock.m", text)}))
        assert found == [(4, "penstock.m.A"), (2, "penstock.m.B")]

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
    assert f"max_imports    {found['max_imports']} (goal 25)\n" in capsys.readouterr().out
