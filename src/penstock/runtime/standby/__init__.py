"""An instance that waits to take over from the active one."""
