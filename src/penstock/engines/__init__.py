"""Where epochs run: engines carry the steps of an epoch to slots, the processes in which lanes run, and rows back."""
