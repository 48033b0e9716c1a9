"""The page about sizing has the figures that the command prints; the command takes what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from verification.harness.processes import ROOT
from verification.scaling import __main__ as command
from verification.scaling import exploration, page, stored
from verification.scaling.constants import measured
from verification.scaling.decided_groups import Bug, Size
from verification.scaling.exploration import Explored, explore
from verification.scaling.sizing import Host, Load

DECISION = ROOT / "docs" / "decisions" / "0055-groups-of-transactions.md"


def test_the_figures_of_the_page_are_current() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    cure = "Cure: python -m verification.scaling --page"
    assert page.with_figures(text, page.figures(measured(), Host())) == text, cure


@pytest.mark.parametrize("path", [page.PAGE, DECISION], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith("https://")]
    assert local
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_the_command_of_the_page_is_that_of_its_example(tmp_path: Path) -> None:
    text = page.PAGE.read_text(encoding="utf-8").replace("\\\n", "")
    found = re.search(r"^python -m verification\.scaling (--records .*)$", text, re.MULTILINE)
    assert found is not None
    report = tmp_path / "scaling.json"
    assert command.main([*found.group(1).split(), "--report", str(report)]) == 0
    written = json.loads(report.read_text())
    assert Load(**written["load"]) == Load()


def test_a_place_that_is_gone_is_named() -> None:
    with pytest.raises(ValueError, match=r"scaling.md has no place for example. Cure"):
        page.with_figures("nothing", {"example": "text"})


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1.884, "1.88"), (0.07, "0.07"), (2.0, "2"), (199_876, "200,000"), (42.04, "42")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert page.said(value) == text


@pytest.mark.parametrize(("value", "text"), [(12, "12 B"), (364e6, "364 MB"), (8.14e9, "8.14 GB"), (2e12, "2 TB")])
def test_bytes_have_units(value: float, text: str) -> None:
    assert page.said_bytes(value) == text


class TestCommand:
    def run(self, tmp_path: Path, *options: str) -> dict[str, dict[str, object]]:
        report = tmp_path / "scaling.json"
        assert command.main([*options, "--report", str(report)]) == 0
        found: dict[str, dict[str, object]] = json.loads(report.read_text())
        return found

    def test_prints_figures_last(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found = self.run(tmp_path, "--records", "1e6", "--stores", "2", "--host-cores", "16")
        assert (found["load"]["records"], found["load"]["stores"], found["host"]["cores"]) == (1e6, 2, 16)
        printed = capsys.readouterr().out
        assert json.loads(printed[printed.index("{") :]) == {name: found[name] for name in ("sizing", "designs")}

    def test_constants_may_be_your_own(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "--set", "lane_us=12", "--set", "writers=50")["constants"]["lane_us"] == 12

    def test_an_unknown_constant_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            command.main(["--set", "lanes_us=12"])
        assert "there is no constant 'lanes_us'; there are lane_us," in capsys.readouterr().err

    def test_a_violation_or_a_bug_that_is_not_caught_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sound = explore(Size(drivers=1))
        broken = Explored(sound.size, 1, 1, 0, 0.0, "rows are lost", ("a driver starts",))
        monkeypatch.setattr(exploration, "SIZES", (sound.size,))
        outcomes = [(sound, broken, 0), (broken, broken, 1), (sound, sound, 1)]
        for found, planted, code in outcomes:
            monkeypatch.setattr(exploration, "explore", lambda _, found=found: found)
            monkeypatch.setattr(exploration, "planted", lambda planted=planted: dict.fromkeys(Bug, planted))
            assert command.main(["--explore", "--report", str(tmp_path / "scaling.json")]) == code


def test_rows_take_more_room_than_their_bytes() -> None:
    found = stored.measure(20_000)
    assert found["row_bytes"] > 8  # a timestamp at least
    assert 0.3 < found["store_fill"] <= 1
