"""The in-process epoch host beside the test driver: generated topologies through cuts, lanes, restarts and roll-backs.

`python -m conformance epochs` is the door; `spec` says what a case is, `judge` what its result has to be, `host` what it is, and
`internals` is the one module that knows Penstock's insides.
"""
