"""Random expressions and records, with values at the edges of their types."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from penstock import col
from penstock.expressions.nodes import (
    Arithmetic,
    Comparison,
    IsNull,
    Literal,
    Logic,
    Negative,
    Node,
    Not,
    Required,
)

INTS = st.sampled_from((0, 1, -1, 2, 7, -7, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63))) | st.integers(
    -20, 20
)
FLOATS = st.sampled_from(
    (0.0, -0.0, 0.1, 0.2, -1.5, 1e16, 1e22, 5e-324, 1.7e308, float(2**53), float(2**63), 1e-7, math.inf, -math.inf, math.nan)
)
TEXTS = st.sampled_from(("", "a", "b", "ä", "\U0001f600", "\ud83d", 'quote"', "back\\slash", "\x00", "a\nb"))
SCALARS = INTS | FLOATS | TEXTS | st.booleans()
BEYOND = st.sampled_from((2**63, 2**64 - 1, -(2**63) - 1))
VALUES = SCALARS | BEYOND | st.none() | st.just([1]) | st.just({"c": 1})
NAMES = st.sampled_from(("a", "b", "c"))

RECORDS: st.SearchStrategy[Any] = st.dictionaries(NAMES, VALUES, max_size=3) | st.none() | st.sampled_from(("text", 5, [1]))

LITERALS = SCALARS.filter(lambda value: repr(value) != "nan").map(lambda value: Literal(value, repr(value)))
COLUMNS = st.one_of(
    NAMES.map(lambda name: col(name).node),
    st.builds(lambda name, of: col(name, of).node, NAMES, st.sampled_from((bool, int, float, str))),
    st.builds(lambda one, two: col(one, two).node, NAMES, NAMES),
    st.just(col().node),
)


def _more(smaller: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from(("+", "-", "*", "/", "//", "%")), smaller, smaller),
        st.builds(Comparison, st.sampled_from(("==", "!=", "<", "<=", ">", ">=")), smaller, smaller),
        st.builds(Logic, st.sampled_from(("&", "|")), smaller, smaller),
        st.builds(Negative, smaller),
        st.builds(Not, smaller),
        st.builds(IsNull, smaller),
        st.builds(Required, smaller),
    )


TREES: st.SearchStrategy[Node] = st.recursive(LITERALS | COLUMNS, _more, max_leaves=8)
