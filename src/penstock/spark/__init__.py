"""The only room that uses Spark: the context, the lane job whose tasks are slots, DataFrames and SQL."""
