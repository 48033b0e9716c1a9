"""The only room that knows the Kafka client: publishes epochs, reads offsets and changelogs, creates and checks topics.

Rows to publish are Arrow record batches with the columns `kind` (1 sink, 2 changelog, 3 dead letter), `name` (an index into the
publisher's topics; -1: see `topic`), `topic`, `partition` (null or negative: by the key, see `partitioner`), `timestamp`, `key`,
`value` and `headers`.
"""
