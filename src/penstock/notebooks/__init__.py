"""For notebooks: a panel of a running application. Topologies and test drivers show themselves."""

from penstock.notebooks.panel import Panel, panel

__all__ = ["Panel", "panel"]
