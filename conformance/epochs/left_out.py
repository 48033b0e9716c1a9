"""The one list of what the epoch oracle does not compare, each with its reason. Everything else that differs is a bug."""

from __future__ import annotations

from conformance.left_out import LeftOut

LEFT_OUT = (
    LeftOut(
        "records of one epoch that reach one store in different stages (foreign-key joins, a stream joined with itself re-keyed)",
        "a stage takes all records before the next one begins, and answers to rows that have changed again are stale, as may "
        "happen in Kafka Streams; they are epochs of their own, without caches, which each stage flushes by itself",
    ),
    LeftOut(
        "processors that run in several stages (below a stream joined with itself re-keyed)",
        "a stage has a stream time of its own, and their punctuators would follow all of them; these cases are counted, not run",
    ),
    LeftOut(
        "epochs of several partitions in which a partition's time goes back",
        "each lane merges the part of a partition that it sees; such epochs are cut until their order is one for any part",
    ),
    LeftOut(
        "order between rows of different shards for one key of a sink, unless they follow from one source partition directly",
        "shards are tasks; each shard's own order is compared",
    ),
    LeftOut("stores without a changelog, in cases with restarts", "a start may find nothing of them; they have one there"),
    LeftOut("topologies that read a topic that they write", "when their records come back depends on when an epoch begins"),
    LeftOut("sources with watermarks", "time that moves at barriers depends on where barriers are; make integration compares it"),
    LeftOut("what peek, foreach and print did", "an epoch that is run again does it again"),
    LeftOut(
        "timers of the library that stop themselves",
        "they count in memory, and an epoch makes its processors anew; here they count in their store",
    ),
)
