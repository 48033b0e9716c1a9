"""Standbys under load: the active instance is killed, stopped or suspended, and another one must continue within seconds.

Not installed; run it with `make takeover` or `python -m verification.takeover`.
"""
