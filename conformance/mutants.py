"""Planted bugs."""


def main(seed: int, only: str | None) -> int:
    """Not yet."""
    raise NotImplementedError
