"""The options that commands share, each declared once, so that it is the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Application = Annotated[str, typer.Argument(metavar="FILE:APP", help="file.py:app or module:app; :app may be omitted.")]
OptionalApplication = Annotated[str | None, typer.Argument(metavar="[FILE:APP]", help="file.py:app or module:app.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="The settings file; by default penstock.toml, if it exists.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting; overrides file and environment. May be repeated."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="TOPIC=FILE", help="Records for a topic: JSON lines, or CSV (*.csv). May be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Admin = Annotated[str, typer.Option(help="The address of the application's admin server.")]
Token = Annotated[
    str | None, typer.Option(metavar="env:NAME|file:PATH", help="Where to read the token; by default PENSTOCK_ADMIN_TOKEN.")
]
ApplicationId = Annotated[str | None, typer.Option(help="Instead of FILE:APP: the application's id.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without --yes, only show what would be done.")]
