"""The list of everything that the epoch oracle does not compare, with reasons. Any other difference is a bug."""

from __future__ import annotations

from verification.conformance.left_out import LeftOut

LEFT_OUT = (
    LeftOut(
        "records of one epoch that reach one store, or an exchange, in different stages (foreign-key joins, a stream that is "
        "joined or merged with itself re-keyed)",
        "a stage processes all records before the next one begins, and answers to rows that have changed again are stale, as may "
        "happen in Kafka Streams; they get separate epochs, without caches, which each stage flushes by itself",
    ),
    LeftOut(
        "processors that run in several stages (below a stream joined with itself re-keyed)",
        "each stage has its own stream time, and their punctuators would follow all of them; these cases are counted, not run",
    ),
    LeftOut(
        "epochs of several partitions in which a partition's time goes back",
        "each lane merges the part of a partition that it sees; such epochs are cut until every part has the same order",
    ),
    LeftOut(
        "order between rows of different shards for one key of a sink, unless one source partition causes them directly",
        "shards are tasks; each shard's own order is compared",
    ),
    LeftOut(
        "order between rows of different stages of an epoch for one key of a sink",
        "they are different sub-topologies; rows of a stage come before those of the next one",
    ),
    LeftOut("stores without a changelog, in cases with restarts", "a start may lose them; they have one there"),
    LeftOut("topologies that read a topic that they write", "when their records return depends on when an epoch begins"),
    LeftOut("sources with watermarks", "their time moves at barriers, so it depends on the cuts; make integration compares them"),
    LeftOut("what peek, foreach and print did", "an epoch that runs again repeats it"),
    LeftOut(
        "what an epoch gives that is taken back, in cases whose processors have results of their life",
        "it runs again with other processors; what is committed is compared",
    ),
    LeftOut(
        "timers of the library that stop themselves",
        "they count in memory, which a restart or a roll-back loses; here they count in their store",
    ),
)
