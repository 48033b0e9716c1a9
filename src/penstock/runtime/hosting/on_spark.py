"""The engine of an application on Spark: lanes in tasks, on this machine or on the hosts of a cluster."""

from __future__ import annotations

from penstock.config import Config
from penstock.engines.many_hosts import ManyHosts
from penstock.engines.one_host import OneHost
from penstock.engines.port import Engine
from penstock.epochs.program import Program
from penstock.observation import logs
from penstock.runtime.hosting.ahead import reads_frames
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.runtime.hosting.spark_work import SparkWork
from penstock.spark.cluster_slots import ClusterSlots
from penstock.spark.context import Spark
from penstock.spark.slots import SparkSlots
from penstock.topology import Topology


def opening_spark(config: Config, program: Program, topology: Topology) -> Spark:
    """Return Spark, which opens in the background."""
    spark = Spark(program.application_id, program.lanes, config.spark, logs.pass_on, has_frames=reads_frames(topology))
    spark.open()
    return spark


def spark_engine(program: Program, tasks: TaskSetUp, spark: Spark) -> tuple[Engine, SparkWork]:
    """Return the engine, and Spark's own work."""
    if not program.is_spread:
        engine = OneHost(program, SparkSlots(program, tasks.prepare, spark), tasks.patience_s, "spark", "Spark tasks")
        return engine, SparkWork(spark, program, tasks.prepare, None)
    slots = ClusterSlots(program, tasks.prepare, spark)
    hosts = ManyHosts(program, slots, tasks.patience_s, tasks.global_topics, tasks.ending)
    return hosts, SparkWork(spark, program, tasks.prepare, hosts.located)
