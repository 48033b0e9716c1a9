"""The site: every page is in its navigation, it has every public name, and a page that loads from elsewhere is noticed."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from tools import site_hooks
from tools.site_check import complaints, dead_links, main
from tools.site_hooks import on_config, on_page_markdown, with_code_links
from verification.pictures.camera import LARGEST_BYTES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
NAV = re.findall(r"^ *- (?:[\w ]+: )?([\w/-]+\.md)$", CONFIG.partition("\nnav:\n")[2], re.MULTILINE)
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
API = (DOCS / "api.md").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once_or_a_decision() -> None:
    pages = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in DECISIONS)
    assert sorted(NAV) == pages


def test_the_page_of_decisions_has_each_with_its_title() -> None:
    listed = re.findall(r"\[(.+?)\]\((0\d+-[\w-]+\.md)\)", (DOCS / "decisions/index.md").read_text(encoding="utf-8"))
    titles = {page.name: page.read_text(encoding="utf-8").splitlines()[0].partition(". ")[2] for page in DECISIONS[1:]}
    assert {name: title for title, name in listed if name in titles} == titles
    assert sorted(name for _, name in listed) == [page.name for page in DECISIONS]


def test_every_page_begins_with_its_title() -> None:
    for page in DOCS.rglob("*.md"):
        assert page.read_text(encoding="utf-8").startswith("# "), page


def test_the_theme_brings_its_own_fonts_and_no_script_is_added() -> None:
    assert re.search(r"^  font: false\b", CONFIG, re.MULTILINE)
    assert not re.search(r"^extra_(javascript|css):", CONFIG, re.MULTILINE)
    assert "://" not in "".join(line.partition("#")[0] for line in CONFIG.splitlines(keepends=True))


def test_the_api_has_every_public_name_once() -> None:
    named = re.findall(r"^::: penstock\.([\w.]+)$", API, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(penstock.__all__) <= set(named)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_pictures_are_there_small_and_described(page: Path) -> None:
    for words, address in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        file = page.parent / address
        assert file.is_file(), f"{page.name}: no picture at {address}; `make screenshots` takes them"
        assert file.stat().st_size < LARGEST_BYTES
        assert len(words) > 10, f"{page.name}: say what {address} shows"


def test_links_to_the_code_become_text() -> None:
    others = "[columns.md](../columns.md) and [Kafka](https://kafka.apache.org)."
    page = f"See [slots.py](../../src/penstock/spark/slots.py), {others}"
    assert with_code_links(page, None) == f"See `slots.py`, {others}"


def test_links_to_the_code_lead_to_the_repository_that_the_build_names() -> None:
    page = "See [slots.py](../../src/penstock/spark/slots.py) and [the map](../ARCHITECTURE.md#rooms)."
    there = "https://code.example/penstock/blob/main"
    found = with_code_links(page, "https://code.example/penstock/")
    assert found == f"See [slots.py]({there}/src/penstock/spark/slots.py) and [the map]({there}/ARCHITECTURE.md#rooms)."
    for repository, edit_uri in (("https://code.example/penstock", "blob/main/docs/"), ("", "")):
        config = SimpleNamespace(repo_url=repository, edit_uri="")
        on_config(config)
        assert config.edit_uri == edit_uri


def test_links_to_pages_show_their_titles(tmp_path: Path) -> None:
    (tmp_path / "running.md").write_text("# Running an application\n\n## What a start does: `run`\n")
    (tmp_path / "guides").mkdir()
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(tmp_path / "guides" / "one.md")))
    config = SimpleNamespace(repo_url="")
    text = "See [running.md](../running.md), [running.md](../running.md#what-a-start-does-run) and [how](../running.md)."
    titled = "See [Running an application](../running.md), [What a start does: `run`](../running.md#what-a-start-does-run)"
    assert on_page_markdown(text, page=page, config=config) == f"{titled} and [how](../running.md)."
    assert on_page_markdown("[gone.md](gone.md)", page=page, config=config) == "[gone.md](gone.md)"


def test_the_examples_of_the_hooks_pass() -> None:
    result = doctest.testmod(site_hooks)
    assert (result.failed, result.attempted) == (0, 4)


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="HTTPS://img.example/a.png">',
        '<img srcset="https://img.example/a.png 2x" src="a.png">',
        '<p style="background: url(https://img.example/a.png)">',
        "<style>@import 'https://fonts.example/a.css';</style>",
        '<iframe src="https://video.example"></iframe>',
        '<pre class="mermaid"><code>flowchart</code></pre>',
    ],
)
def test_a_page_that_loads_from_elsewhere_is_noticed(tmp_path: Path, loads: str) -> None:
    (tmp_path / "page.html").write_text(f"<html><body>{loads}</body></html>", encoding="utf-8")
    assert len(list(complaints(tmp_path))) == 1
    assert main([str(tmp_path)]) == 1


def test_a_style_that_loads_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a { background: url('https://img.example/a.png') }", encoding="utf-8")
    assert list(complaints(tmp_path)) == ["a.css: loads https://img.example/a.png"]


def test_links_that_a_reader_follows_are_allowed(tmp_path: Path) -> None:
    page = '<link rel="canonical" href="https://a.example"><a href="https://a.example">there</a><img src="a.png">'
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    assert list(complaints(tmp_path)) == []
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("link", ["gone.html", "other.html#gone", "#gone", "/gone.html", "deep/gone.html", "deep/"])
def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path, link: str) -> None:
    (tmp_path / "page.html").write_text(f'<a href="{link}">there</a>', encoding="utf-8")
    (tmp_path / "other.html").write_text('<h2 id="here">here</h2>', encoding="utf-8")
    (tmp_path / "deep").mkdir()
    assert list(dead_links(tmp_path)) == [f"page.html: the link {link} leads nowhere"]
    assert main([str(tmp_path)]) == 1


@pytest.mark.parametrize(
    "link",
    [
        "#",
        "#h%C3%A9",
        "other.html#here",
        "/other.html",
        "deep/",
        "deep/index.html",
        "deep/../other.html",
        "mailto:a@b.example",
        "a.svg#x",
    ],
)
def test_a_link_that_leads_somewhere_is_not(tmp_path: Path, link: str) -> None:
    (tmp_path / "page.html").write_text(f'<h2 id="hé"></h2><a href="{link}">there</a>', encoding="utf-8")
    (tmp_path / "other.html").write_text('<a name="here">here</a>', encoding="utf-8")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.html").write_text("<p>there</p>", encoding="utf-8")
    (tmp_path / "a.svg").write_text("<svg/>", encoding="utf-8")
    assert list(dead_links(tmp_path)) == []


def test_an_empty_site_is_no_success(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1
