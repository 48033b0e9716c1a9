"""A reader's first day: the wheel in an empty environment, and the commands of the first pages as they stand there.

Not installed; run it with `make first-day` or `python -m verification.first_day`.
"""
