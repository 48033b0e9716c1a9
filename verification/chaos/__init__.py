"""Faults under load: an application that is killed, cut off, duplicated and fed bad records must not lose, duplicate or reorder.

Not installed; run it with `make chaos` or `python -m verification.chaos`.
"""
