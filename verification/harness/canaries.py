"""Unique secrets, and the search for them in whatever an application leaves behind."""

from __future__ import annotations

import base64
import json
import secrets
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

OVERLAP = 4_096
CHUNK = 1 << 20


def canary(name: str) -> str:
    """A unique secret that cannot occur by chance."""
    return f"canary-{name}-{secrets.token_hex(8)}"


def canaries_in(canaries: Mapping[str, str], *places: Path | str | bytes) -> list[str]:
    """Where the secrets are found, by name: in texts, in bytes, and in all files of directories, including file names.

    A secret is also found in base64, URL-encoded and with the escapes of JSON and JAAS. The caller must check that the places
    are not empty.

    Example:
        >>> canaries_in({"password": "s3cr3t"}, "user ann", b"login s3cr3t")
        ['password in bytes']
    """
    forms = {name: _forms(secret) for name, secret in canaries.items()}
    found = []
    for place in places:
        for where, data in _parts(place):
            found += [f"{name} in {where}" for name, each in forms.items() if any(form in data for form in each)]
    return sorted(set(found))


def _forms(secret: str) -> set[bytes]:
    escaped = {secret, json.dumps(secret)[1:-1], urllib.parse.quote(secret, safe=""), secret.replace("\\", "\\\\")}
    # The base64 form depends on the number of bytes before it, and its first and last letters on the adjacent bytes.
    coded = {base64.b64encode(b"\0" * before + secret.encode())[4:-4] for before in range(3)}
    return {form.encode() for form in escaped} | {form for form in coded if len(form) >= 12}


def _parts(place: Path | str | bytes) -> Iterator[tuple[str, bytes]]:
    if isinstance(place, str):
        yield "text", place.encode("utf-8", "surrogateescape")
    elif isinstance(place, bytes):
        yield "bytes", place
    else:
        for path in [place, *(place.rglob("*") if place.is_dir() else ())]:
            yield f"the name of {path}", path.name.encode()
            if path.is_file() and not path.is_symlink():
                yield from ((str(path), data) for data in _chunks(path))


def _chunks(path: Path) -> Iterable[bytes]:
    """A file in pieces, each beginning with the end of the one before; files may disappear while they are read."""
    before = b""
    try:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                yield before + data
                before = data[-OVERLAP:]
    except FileNotFoundError:
        return
