"""Column expressions: values that say what is computed from a record's fields, and how they are computed record by record.

An expression is a frozen value, so a topology that contains it can be compared and described, and it can be computed in other
ways than by calling a function for each record.
"""

from penstock.expressions import agg
from penstock.expressions.expression import Expression, col, left, right, struct

__all__ = ["Expression", "agg", "col", "left", "right", "struct"]
