"""The page for people: a document with its style and script, and what it asks for. No build step, nothing from outside."""

from penstock.admin.dashboard.routes import PUBLIC, routes

__all__ = ["PUBLIC", "routes"]
