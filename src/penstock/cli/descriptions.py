"""The formats of `penstock describe`."""

from __future__ import annotations

import json

from penstock.app import App
from penstock.topology.json_view import json_view
from penstock.topology.plan import plan


def description(app: App, form: str) -> str:
    """Return the application's topology as `text`, `mermaid`, `json` or `svg`."""
    topology = app.topology
    if form == "mermaid":
        return topology.mermaid()
    if form == "svg":
        return topology.svg()
    if form == "json":
        about = {"application_id": app.application_id, "fingerprint": plan(topology).fingerprint, **json_view(topology)}
        return json.dumps(about, indent=2) + "\n"
    return topology.describe()
