"""The only room that uses Spark: a session, the stream of epochs from the topics, and one job per epoch."""
