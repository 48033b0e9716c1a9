"""A running application: its states, its start, its epochs and its shutdown."""
