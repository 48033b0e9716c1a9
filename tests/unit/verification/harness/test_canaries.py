"""The search for secrets finds them in every form in which they are likely to be left behind."""

from __future__ import annotations

import base64
import json
import urllib.parse
from pathlib import Path

import pytest

from verification.harness.canaries import CHUNK, canaries_in, canary

SECRET = 'q"uo\\te d/&-canary-of-some-length'


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        json.dumps({"password": SECRET}),
        f"https://ann:{urllib.parse.quote(SECRET, safe='')}@host",
        SECRET.replace("\\", "\\\\"),
        *(base64.b64encode(b"x" * before + SECRET.encode() + b"y" * 5).decode() for before in range(4)),
    ],
)
def test_a_secret_is_found_in_text(text: str) -> None:
    assert canaries_in({"one": SECRET, "other": canary("other")}, "nothing here", text) == ["one in text"]
    assert canaries_in({"one": SECRET}, text.encode()) == ["one in bytes"]


def test_a_secret_is_found_in_files_and_their_names(tmp_path: Path) -> None:
    secret = canary("file")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "log").write_bytes(b"\xff" * (CHUNK - 5) + secret.encode() + b"\x00")  # across two pieces
    (tmp_path / f"x-{secret}").touch()
    found = canaries_in({"one": secret}, tmp_path)
    assert found == sorted([f"one in {tmp_path / 'deep' / 'er' / 'log'}", f"one in the name of {tmp_path / f'x-{secret}'}"])


def test_places_without_a_secret_give_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("all is well")
    assert canaries_in({"one": canary("one")}, tmp_path, "all is well", b"") == []


def test_every_canary_is_unique() -> None:
    assert canary("a") != canary("a")
