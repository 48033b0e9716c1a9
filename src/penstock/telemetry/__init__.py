"""What an application reports while it runs: logs and traces."""
