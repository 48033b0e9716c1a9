"""A page is followed in terminals with programs that only look like the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verification.first_day import session
from verification.first_day.outcome import Record
from verification.first_day.pages import page_of
from verification.first_day.session import Session, failing_line, program

pytestmark = pytest.mark.slow  # shells start for each

PROGRAMS = {
    "pip": 'test "$*" != "install nothing"',
    "penstock": """
case "$1" in
new) mkdir "$2" && echo 'x = 1' > "$2/app.py" && echo "Created $2." ;;
dev) ls "$KAFKA_HOME"/libs 2> /dev/null; trap 'rm -f "$SERVING"; exit ${DEV_EXIT:-0}' INT
     pwd > "$SERVING"; while true; do sleep 0.05; done ;;
query) test -e "$SERVING" && echo "$GREETING from $PWD"; test "$2" != gone || echo "0 rows" ;;
top) trap 'exit 0' INT; echo screen; while true; do sleep 0.05; done ;;
fail) echo 'something is wrong' >&2; exit 3 ;;
esac
""",
}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    programs, serving = tmp_path / "bin", tmp_path / "serving"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(session, "is_caught_up", serving.exists)
    monkeypatch.setattr(session, "WATCH_S", 0.3)
    monkeypatch.setattr(session, "SERVE_S", 5)
    return {"PATH": f"{programs}:{os.environ['PATH']}", "SERVING": str(serving)}


def follow(text: str, tmp_path: Path, environment: dict[str, str], look: str | None = None) -> Record:
    home, jars = tmp_path / "home", tmp_path / "jars"
    home.mkdir()
    jars.mkdir()
    (jars / "kafka.jar").touch()
    with Session(page_of("page.md", text), home, environment, jars, lambda: look) as reader:
        return reader.follow()


def console(*lines: str) -> str:
    return "\n".join(["```console", *lines, "```", ""])


def problems(record: Record) -> list[str]:
    return [str(problem).splitlines()[0] for problem in record.problems]


def test_a_page_from_the_installation_to_two_applications(tmp_path: Path, environment: dict[str, str]) -> None:
    text = console(
        "$ export GREETING=hello && pip install penstock-streams",
        "$ penstock new shop && cd shop",
        "Created shop.",
        "$ penstock dev app.py",
        "$ penstock query",
        f"hello from {tmp_path}/home/shop",
        "$ penstock top",
        "$ KAFKA_HOME=kafka penstock dev app.py",
        "$ penstock query && test -e kafka/libs/kafka.jar",
    )
    record = follow(text, tmp_path, environment)
    assert problems(record) == []
    assert [timing.line for timing in record.timings] == [2, 3, 5, 6, 8, 9, 10]
    assert not Path(environment["SERVING"]).exists()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("$ penstock fail", "page.md:2: ended with exit code 3:"),
        ("$ echo b\na", "page.md:2: prints something else than the page shows:"),
        ("$ penstock query gone", "page.md:2: finds nothing:"),
        ("$ penstock dev app.py", "page.md:2: ends with exit code 9, not 0, on Ctrl-C:"),
        ("$ penstock run app.py", "page.md:2: ended with exit code 0 before it served:"),
        ("$ python app.py", "page.md:2: ended with exit code 2 before it served:"),
    ],
)
def test_what_a_reader_stumbles_over(tmp_path: Path, environment: dict[str, str], command: str, problem: str) -> None:
    record = follow(console(command), tmp_path, {**environment, "DEV_EXIT": "9"})
    assert problems(record) == [problem]
    assert record.failed_blocks == 1


def test_what_the_broker_says_counts(tmp_path: Path, environment: dict[str, str]) -> None:
    record = follow(console("$ penstock dev app.py"), tmp_path, environment, "counted twice")
    assert problems(record) == ["page.md:2: counted twice"]


def test_an_application_that_never_serves_is_given_up(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "is_caught_up", lambda: False)
    monkeypatch.setattr(session, "SERVE_S", 0.5)
    record = follow(console("$ penstock dev app.py"), tmp_path, environment)
    assert problems(record) == ["page.md:2: does not serve after 0.5 s:"]


def test_without_an_installation_nothing_else_is_tried(tmp_path: Path, environment: dict[str, str]) -> None:
    text = console("$ pip install nothing", "$ penstock new shop") + "\n" + console("$ penstock fail")
    record = follow(text, tmp_path, environment)
    assert problems(record) == [
        "page.md:2: ended with exit code 1:",
        "page.md:7: not reached, because the installation failed",
    ]
    assert record.failed_blocks == 2
    assert not (tmp_path / "home" / "shop").exists()


def test_files_are_saved_excerpts_recognized_and_other_blocks_run_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = ["y = 2", "# said.py\nprint('saved')", "x = 1", "assert y == 2", "assert y == 3", "z = 4"]
    python = "\n".join(f"```python\n{block}\n```\n" for block in blocks)
    record = follow(console("$ penstock new shop && cd shop") + "\n" + python, tmp_path, environment)
    lines = [block.line for block in record.page.blocks]
    assert problems(record) == [f"page.md:{lines[5]}: exit code 1:", f"page.md:{lines[6]}: exit code 1:"]
    assert (tmp_path / "home" / "shop" / "said.py").read_text() == "# said.py\nprint('saved')\n"


def test_the_lines_of_a_program_are_those_of_the_page() -> None:
    page = page_of("page.md", "text\n\n```python\na = 1\n```\ntext\n```python\nb = 2\n```\n")
    assert program(list(page.blocks)) == "\n\n\na = 1\n\n\n\nb = 2\n"


def test_the_failing_line_is_that_of_a_statement_of_the_page() -> None:
    inner = '  File "/x/b.py", line 9, in <module>\n  File "/x/b.py", line 3, in called\n'
    assert failing_line(f"Traceback:\n{inner}", "b.py") == 9
    assert failing_line('  File "/x/b.py", line 4\n    x =\nSyntaxError: invalid syntax', "b.py") == 0
