"""Many writers, one transaction: processes that are given the driver's producer id and epoch write parts of an epoch.

The driver takes over, begins, sends the offsets and ends each transaction (`transactions`); writers add their partitions to it
and send batches to the partitions' leaders (`writer`). Both use aiokafka's connections and encoders, because librdkafka cannot
be given a producer id. Brokers must have transaction.version=2 (KIP-890): then every transaction has a producer epoch of its own.
"""
