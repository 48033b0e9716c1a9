"""State that changes its shape: a large store is migrated while the application is killed, and every value is converted once."""
