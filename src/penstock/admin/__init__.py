"""The HTTP door of a running application: health, metrics, topology, state, queries; and who may pass."""
