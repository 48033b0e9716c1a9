"""The options that commands share, each declared once: it has one name, one form and one help text wherever it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Application = Annotated[str, typer.Argument(metavar="FILE:APP", help="file.py:app or module:app; the object is app if left out.")]
OptionalApplication = Annotated[str | None, typer.Argument(metavar="[FILE:APP]", help="file.py:app or module:app.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings; penstock.toml is read if it is there.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, over file and environment; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Admin = Annotated[str, typer.Option(help="Where the application's admin server listens.")]
Token = Annotated[
    str | None, typer.Option(metavar="env:NAME|file:PATH", help="Where the token is; PENSTOCK_ADMIN_TOKEN if left out.")
]
ApplicationId = Annotated[str | None, typer.Option(help="Instead of FILE:APP: the application by its id.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this, only show what would be done.")]
