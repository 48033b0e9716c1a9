"""The dashboard: a page with its style and script, and the data it requests. No build step, nothing from other sites."""

from penstock.admin.dashboard.routes import PUBLIC, routes

__all__ = ["PUBLIC", "routes"]
