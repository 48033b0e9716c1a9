"""Whether people who did not write an application can operate it: measured and checked on a real one."""
