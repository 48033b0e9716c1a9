"""What leaves the process for people and machines to read: logs and traces."""
