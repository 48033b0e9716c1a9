"""The version of Penstock. The wheel takes it from here, so that it is known without an installed package, too."""

__version__ = "0.1.0.dev0"
"""The version of Penstock, which `penstock --version` prints."""
DISTRIBUTION = "penstock-streams"
"""What pip installs: on PyPI, `penstock` is somebody else's."""
