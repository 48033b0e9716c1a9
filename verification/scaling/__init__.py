"""How large an application must be for a load, where each way to commit breaks, and a model of the one that breaks last."""
