"""`penstock dev`: runs an application while it is being written, with a broker of its own if need be."""
