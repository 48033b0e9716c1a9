"""The in-process epoch host compared with the test driver: generated topologies, cuts, lanes, restarts and rollbacks.

Run it with `python -m verification.conformance epochs`; `spec` defines a case, `judge` its expected result, `host` its actual
one, and only `internals` uses Penstock's internals.
"""
