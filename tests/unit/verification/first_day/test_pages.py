"""Blocks and commands are found as a reader sees them, and the pages lead where they should, in few steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.first_day import commands
from verification.first_day.__main__ import PAGES, START
from verification.first_day.exactly_once import store_shown
from verification.first_day.pages import Command, PageError, page_of, read_page
from verification.harness.processes import HarnessError

ROOT = Path(__file__).parents[4]

TEXT = """# A page

```console
$ pip install penstock-streams
$ penstock try app.py \\
  --input a=b
topic a
  $ is no prompt here
```

```python
# app.py
x = 1
```

```python
# a comment
y = 2
```

```json title="moves.jsonl"
{"a": 1}
```

```json
{"not": "saved"}
```
"""


def test_blocks_have_their_lines_and_the_names_of_their_files() -> None:
    page = page_of("page.md", TEXT)
    assert [(block.language, block.line, block.file) for block in page.blocks] == [
        ("console", 4, None),
        ("python", 12, "app.py"),
        ("python", 17, None),
        ("json", 22, "moves.jsonl"),
    ]
    assert TEXT.splitlines()[21] == page.blocks[3].text.strip() == '{"a": 1}'


def test_commands_have_the_output_that_follows_them() -> None:
    assert page_of("page.md", TEXT).commands() == [
        Command(text="pip install penstock-streams", line=4),
        Command(text="penstock try app.py \\\n  --input a=b", line=5, shown="topic a\n  $ is no prompt here"),
    ]


def test_a_block_without_a_command_is_refused() -> None:
    with pytest.raises(PageError, match="line 2: a block of a terminal must begin with a command"):
        page_of("page.md", "```console\noutput\n$ ls\n```\n").commands()


@pytest.mark.parametrize(
    ("text", "is_server"),
    [
        ("penstock dev app.py --open", True),
        ("KAFKA_HOME=kafka penstock dev app.py", True),
        ("A=b C='d e' python app.py", True),
        ("penstock run app.py", True),
        ("penstock run app.py --until latest", False),
        ("penstock query --store dev", False),
        ("penstock new shop && cd shop", False),
        ("python -m venv .venv", False),
    ],
)
def test_what_serves(text: str, is_server: bool) -> None:
    assert commands.serves(text) == is_server


def test_other_kinds_of_commands() -> None:
    assert commands.watches("penstock top")
    assert not commands.watches("penstock top --once")
    assert commands.installs("pip install pytest && pytest")
    assert commands.kafka_home("KAFKA_HOME=kafka_2.13-4.3.1 penstock dev app.py") == "kafka_2.13-4.3.1"
    assert commands.kafka_home("penstock dev app.py") is None


@pytest.mark.parametrize(
    ("output", "is_empty"),
    [
        ("┗━━┛\n0 rows", True),
        ('{"error":"no_key","message":"…"}', True),
        ("1 rows, as of epoch 3", False),
        ("10 rows", False),
    ],
)
def test_a_query_that_finds_nothing(output: str, is_empty: bool) -> None:
    assert commands.found_nothing(output) == is_empty


def steps(*texts: str) -> list[Command]:
    return [Command(text=text, line=number) for number, text in enumerate(texts)]


def test_the_way_is_counted_from_the_installation_to_the_output_and_on_to_the_broker() -> None:
    way = steps(
        "ls", "pip install penstock-streams", "penstock new a", "penstock try a", "pytest", "penstock dev a", "penstock top"
    )
    assert [command.line for command in way[commands.to_first_output(way)]] == [1, 2, 3]
    assert [command.line for command in way[commands.to_exactly_once(way)]] == [4, 5]


@pytest.mark.parametrize("left_out", [1, 3, 5])
def test_a_page_without_a_part_of_the_way_is_refused(left_out: int) -> None:
    way = steps("ls", "pip install penstock-streams", "penstock new a", "penstock try a", "pytest", "penstock dev a")
    del way[left_out]
    with pytest.raises(PageError, match="the page has no command"):
        commands.to_exactly_once(way)


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_can_be_read(name: str) -> None:
    page = read_page(ROOT, name)
    assert any(commands.installs(command.text) for command in page.commands())
    assert any(commands.serves(command.text) for command in page.commands())


def test_the_quick_start_is_short_and_shows_the_store() -> None:
    way = read_page(ROOT, START).commands()
    assert len(way[commands.to_first_output(way)]) <= 3
    assert len(way[commands.to_exactly_once(way)]) <= 3
    [shown] = [command.shown for command in way if commands.tries(command.text)]
    assert store_shown(shown or "", "totals") == {"ann": {"orders": 2, "amount": 20.0}, "bob": {"orders": 2, "amount": 43.0}}


def test_an_output_without_the_store_is_refused() -> None:
    with pytest.raises(HarnessError, match="no rows of the store totals"):
        store_shown("topic totals\n│ ann │ 1 │\n", "totals")
