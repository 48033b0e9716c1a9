"""Kafka's WordCount demo, in Penstock: how often each word has occurred in the lines of a topic."""

from __future__ import annotations

from penstock import App, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("streams-plaintext-input", key=str, value=str)
    .flat_map_values(lambda line: line.lower().split())
    .group_by(lambda _, word: word, key=str)
    .count(store="counts-store")
    .to_stream()
    .to("streams-wordcount-output", value=int)
)
app = App("streams-wordcount", builder.build())

if __name__ == "__main__":
    app.run()
