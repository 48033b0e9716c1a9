"""An environment without Spark beside the one with it."""
