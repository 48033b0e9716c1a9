"""What an application tells the outside while it runs: logs and traces."""
