"""Scripts of the project that are not installed."""
