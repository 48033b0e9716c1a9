"""The HTTP server of a running application: health, metrics, topology, state, queries, and access control."""
