"""Ordered byte maps below a lane: LMDB by default, RocksDB for state larger than memory, plain memory for tests."""
