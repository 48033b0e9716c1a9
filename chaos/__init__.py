"""Faults under load: a running application is killed, cut off, doubled and fed poison, and must lose, double or reorder nothing.

Not installed; `make chaos` and `python -m chaos` are its doors.
"""
