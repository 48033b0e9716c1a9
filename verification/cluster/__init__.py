"""An application on a Spark cluster of several hosts: hosts, executors and drivers are killed, paused, added and removed."""
