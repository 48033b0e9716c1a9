"""The command line: `penstock new`, `try`, `dev`, `run`, `describe`, `plan`, `reset`, `doctor`, `query`, `top`, `dlq`."""


def main() -> None:
    """Run the command line."""
    from penstock.cli.commands import commands  # noqa: PLC0415 - only the command line pays for importing typer

    commands()
