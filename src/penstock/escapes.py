"""Escapes characters of text that could deceive a reader or a terminal, or look like another line."""

from __future__ import annotations

import re

_ODD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, which could move a terminal's cursor; not tab and newline
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # characters that change the direction of text
    r"\u2028\u2029\ud800-\udfff]"  # other line ends, and surrogates, which cannot be encoded
)


def escaped(text: str) -> str:
    r"""Escape characters that could deceive a reader or a terminal, as `\x1b`; tabs and newlines are kept.

    Example:
        >>> escaped("\x1b[2Kall is well")
        '\\x1b[2Kall is well'
    """
    return _ODD.sub(_written_out, text)


def on_one_line(text: str) -> str:
    r"""Escape these characters and newlines: text that a record has chosen is one line, and no other.

    Example:
        >>> on_one_line("first\nsecond")
        'first\\nsecond'
    """
    return escaped(text).replace("\n", r"\n")


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
