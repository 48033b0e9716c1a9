"""Results as documents: the bytes that `Json()` writes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.expressions.columns.texts import documents
from penstock.serdes import Json

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from((",", '","', "%b", "\n"))
NAMES = st.sampled_from(("n", "total", "ä", "a%b", "B", "_", "ﬁ", "\U0001f600"))


@given(st.dictionaries(NAMES, st.sampled_from((NUMBERS, TEXTS, NUMBERS | TEXTS)), min_size=1), st.integers(1, 5), st.data())
def test_documents_are_what_the_serde_writes(fields: dict[str, st.SearchStrategy[Any]], size: int, data: st.DataObject) -> None:
    results = [data.draw(st.lists(kind, min_size=size, max_size=size)) for kind in fields.values()]
    expected = [Json().serialize(dict(zip(fields, values, strict=True))) for values in zip(*results, strict=True)]
    assert documents(list(fields), results) == expected
