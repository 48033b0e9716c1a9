"""The sides: Penstock and its rivals. Each knows how to start an application for a job, and how far it has come."""
