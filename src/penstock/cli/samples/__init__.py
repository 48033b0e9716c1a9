"""Sample records in files, as `penstock try` and `penstock dev` take them."""
