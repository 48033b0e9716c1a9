"""Worker processes of the driver: they run epochs and restore lanes without Spark."""
