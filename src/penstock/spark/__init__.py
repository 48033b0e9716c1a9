"""The engine: the only room that knows Spark. A session, the stream of epochs from the topics, and one job per epoch."""
