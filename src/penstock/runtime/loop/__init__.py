"""The loop of epochs: what an epoch takes, how often it is tried, and its commit."""
