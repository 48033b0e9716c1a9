"""The command line: `penstock run`, `describe`, `plan`, `reset`, `doctor`, `query`, `top`, `dlq`."""


def main() -> None:
    """The entry point."""
    from penstock.cli.commands import commands  # noqa: PLC0415 - only who calls it pays for typer

    commands()
