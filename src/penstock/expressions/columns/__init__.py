"""The columns evaluator: expressions and aggregates computed for many records at once, with arrays.

It gives exactly what the rows evaluator gives, or raises `DoubtError`: it never decides about errors.
"""
