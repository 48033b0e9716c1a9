"""A running application: its states, how it starts, its epochs, how it ends."""
