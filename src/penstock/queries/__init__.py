"""Questions to the stores of a running application, answered as of its last barrier."""
