"""The camera in a real browser: it notices what is wrong with a page, and takes pictures of the size that was asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.harness.chromium import Chromium, chromium
from verification.pictures.built_site import served
from verification.pictures.camera import PHONE, SCREEN, Camera

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(chromium() is None, reason="no chromium: tools/chromium/bring .parts/chromium")]

HEAD = (
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)
GOOD = "<p>Some words.</p><div style='overflow: auto'><div style='width: 3000px'>wide, but it scrolls</div></div>"
WRONG = {
    "it asks http": "<img src='http://images.example/a.png' alt=''>",
    "no image at": "<img src='missing.png' alt=''>",
    "404": "<script src='missing.js'></script>",
    "out of order": "<script>console.error('out of order')</script>",
    "in a window of 1280": "<div style='width: 1500px'>wide</div>",
    "in a window of 390": "<div style='width: 500px'>wide</div>",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as started:
        yield started


@pytest.fixture
def camera(browser: Chromium, tmp_path: Path) -> Camera:
    return Camera(browser, tmp_path / "pictures")


def test_a_page_without_flaws_passes(camera: Camera, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(HEAD + GOOD)
    with served(tmp_path) as url:
        camera.open(f"{url}/page.html")
        camera.check(SCREEN, PHONE)


@pytest.mark.parametrize("said", WRONG)
def test_a_flaw_is_noticed(camera: Camera, tmp_path: Path, said: str) -> None:
    (tmp_path / "page.html").write_text(HEAD + WRONG[said])
    with served(tmp_path) as url:
        camera.open(f"{url}/page.html")
        with pytest.raises(AssertionError, match=said):
            camera.check(SCREEN, PHONE)


def test_a_picture_has_the_size_of_the_part(camera: Camera, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        HEAD + "<style>body { margin: 0 }</style><div style='width: 300px; height: 70px'>part</div>"
    )
    with served(tmp_path) as url:
        camera.open(f"{url}/page.html")
        picture = camera.take_part("part", "div", 2)
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (600, 140)
    assert camera.taken == [picture]
