"""The checks of `penstock doctor` that need brokers: reachability, transactions, topics, permissions, limits, replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.app import App
from penstock.cli.findings import Finding, fail, ok, warn
from penstock.config import Config, Guarantee
from penstock.errors import PenstockError
from penstock.history.shards import looking
from penstock.kafka.broker_facts import ClusterFacts, TopicFacts, describe_cluster, describe_topics, group_rights
from penstock.kafka.clients import open_admin
from penstock.kafka.offsets import refuse_members
from penstock.kafka.topics import Topic, Topics, check

_TIMEOUT_MS = 15_000
"""How long to wait for brokers at most: an application may wait longer."""

_WEEK_MINUTES = 7 * 24 * 60
_ENOUGH_REPLICAS = 3
_READS = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
_WRITES = frozenset({"WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


def examine_brokers(app: App | None, config: Config) -> Iterator[Finding]:
    """Check the brokers; if none responds, report only that."""
    bounded = replace(config, broker_timeout_ms=min(config.broker_timeout_ms, _TIMEOUT_MS))
    try:
        admin = open_admin(bounded)
        cluster = describe_cluster(admin, bounded.broker_timeout_ms / 1_000)
    except PenstockError as error:
        yield fail("brokers", str(error), "check bootstrap.servers, the network and the credentials")
        return
    yield ok("brokers", f"{cluster.brokers} reachable")
    yield from limits(cluster, config)
    if app is not None:
        try:
            yield from _application(app, bounded, admin, cluster)
        except PenstockError as error:
            yield fail("application", str(error), "see the message")


def limits(cluster: ClusterFacts, config: Config) -> Iterator[Finding]:
    """Check the broker settings that an application depends on."""
    settings = cluster.settings
    if not settings:
        yield warn("limits", "the brokers do not reveal their settings", "to check them, allow DESCRIBE_CONFIGS on the cluster")
        return
    if config.guarantee is Guarantee.EXACTLY_ONCE:
        yield _transactions(cluster)
        longest = int(settings.get("transaction.max.timeout.ms", "0"))
        text = f"transaction_timeout is {config.transaction_timeout_ms} ms, the brokers allow at most {longest} ms"
        cure = "lower transaction_timeout, or raise the brokers' transaction.max.timeout.ms"
        is_allowed = not longest or config.transaction_timeout_ms <= longest
        yield ok("transaction timeout", text) if is_allowed else fail("transaction timeout", text, cure)
    kept = int(settings.get("offsets.retention.minutes", str(_WEEK_MINUTES)))
    text = f"the brokers keep the offsets of a stopped application for {kept / 60 / 24:.1f} days"
    cure = "raise the brokers' offsets.retention.minutes: an application that has lost its offsets must be reset"
    yield ok("offsets", text) if kept >= _WEEK_MINUTES else warn("offsets", text, cure)


def _transactions(cluster: ClusterFacts) -> Finding:
    needed = int(cluster.settings.get("transaction.state.log.replication.factor", "1"))
    if cluster.brokers < needed:
        cure = "start more brokers, or lower their transaction.state.log.replication.factor"
        return fail("transactions", f"transactions need {needed} brokers, there are {cluster.brokers}", cure)
    return ok("transactions", f"the transaction log is on {needed} of {cluster.brokers} brokers")


def _application(app: App, config: Config, admin: Any, cluster: ClusterFacts) -> Iterator[Finding]:
    topics = Topics(admin, config.broker_timeout_ms)
    truth = looking(app.application_id, app.topology, app.error_handlers, config, topics)
    read, written = set(truth.read_topics) - truth.table_topics, set(truth.written_topics)
    wanted = {topic.name: topic for topic in truth.internal_topics}
    found = topics.describe(read | written | wanted.keys())
    facts = describe_topics(admin, found.keys(), config.broker_timeout_ms / 1_000)
    yield _missing((read | written) - found.keys())
    yield from _internal(wanted, found)
    yield from rights(facts, read, written, wanted.keys())
    yield _creation(wanted.keys() - found.keys(), cluster)
    yield from _group(app.application_id, config, admin)
    yield message_sizes(found, read, written | wanted.keys())
    yield replicas({name: fact for name, fact in facts.items() if name in wanted}, cluster.brokers, config.replication_factor)


def _missing(missing: Iterable[str]) -> Finding:
    names = sorted(missing)
    if names:
        return fail("topics", f"missing: {', '.join(names)}", "create them: a start creates only internal topics")
    return ok("topics", "all source and sink topics exist")


def _internal(wanted: Mapping[str, Any], found: Mapping[str, Topic]) -> Iterator[Finding]:
    """Check the internal topics that exist."""
    problems = []
    for name in sorted(wanted.keys() & found.keys()):
        try:
            check(wanted[name], found[name])
        except PenstockError as error:
            problems.append(str(error))
    yield from (fail("internal topics", problem, "see the message") for problem in problems)
    if not problems:
        existing = len(wanted.keys() & found.keys())
        yield ok("internal topics", f"{existing} of {len(wanted)} exist; a start creates the others")


def rights(
    facts: Mapping[str, TopicFacts], read: Iterable[str], written: Iterable[str], internal: Iterable[str]
) -> Iterator[Finding]:
    """Check that the client has the permissions on each topic that the application needs."""
    needed: dict[str, frozenset[str]] = dict.fromkeys(read, _READS)
    for name in written:
        needed[name] = needed.get(name, frozenset()) | _WRITES
    needed |= dict.fromkeys(internal, _READS | _WRITES)
    refused = [
        f"{name} ({', '.join(sorted(missing))})"
        for name, rights in sorted(needed.items())
        if name in facts and (allowed := facts[name].allowed) is not None and (missing := _lacking(rights, allowed))
    ]
    if refused:
        yield fail("rights", f"not allowed: {'; '.join(refused)}", "grant the user these permissions (kafka-acls.sh)")
    elif any(fact.allowed is None for fact in facts.values()):
        yield warn("rights", "the brokers do not reveal permissions", "use Kafka 2.3 or later")
    else:
        yield ok("rights", "topics can be read and written (brokers do not reveal whether the transactional id may be used)")


def _lacking(needed: frozenset[str], allowed: frozenset[str]) -> frozenset[str]:
    return frozenset() if "ALL" in allowed else needed - allowed


def _creation(missing: Iterable[str], cluster: ClusterFacts) -> Finding:
    names = sorted(missing)
    if names and cluster.allowed is not None and _lacking(frozenset({"CREATE"}), cluster.allowed):
        cure = "allow CREATE on the cluster or on topics prefixed with the application's id, or create the topics"
        return warn("creation", f"{len(names)} internal topics are missing, and CREATE on the cluster is not allowed", cure)
    return ok("creation", f"a start creates {len(names)} internal topics")


def _group(application_id: str, config: Config, admin: Any) -> Iterator[Finding]:
    try:
        refuse_members(admin, application_id, config.broker_timeout_ms)
        allowed = group_rights(admin, application_id, config.broker_timeout_ms / 1_000)
    except PenstockError as error:
        yield fail("group", str(error), "see the message")
        return
    missing = frozenset() if allowed is None else _lacking(frozenset({"READ", "DESCRIBE"}), allowed)
    if missing:
        yield fail(
            "group", f"not allowed on {application_id!r}: {', '.join(sorted(missing))}", "grant the user these permissions"
        )
    else:
        yield ok("group", f"group {application_id!r} can be used and has no members")


def message_sizes(found: Mapping[str, Topic], read: Iterable[str], written: Iterable[str]) -> Finding:
    """Check that outputs and changelogs accept records as large as those of the sources."""
    largest = max((found[name].max_message_bytes for name in read if name in found), default=0)
    small = sorted(name for name in written if name in found and found[name].max_message_bytes < largest)
    if small:
        cure = "raise max.message.bytes there, or set an error handler for records that are too large"
        return warn("record sizes", f"sources accept {largest} bytes, these topics accept less: {', '.join(small)}", cure)
    return ok("record sizes", "output topics accept records as large as the sources")


def replicas(internal: Mapping[str, TopicFacts], brokers: int, replication_factor: int) -> Finding:
    """Check that losing a broker does not lose state."""
    few = sorted(name for name, fact in internal.items() if fact.replicas < min(_ENOUGH_REPLICAS, brokers))
    behind = sorted(name for name, fact in internal.items() if fact.in_sync < fact.replicas)
    if brokers < _ENOUGH_REPLICAS:
        return warn("replicas", f"{brokers} brokers: losing one may lose state", "in production, run three or more")
    if few or 0 < replication_factor < _ENOUGH_REPLICAS:
        names = ", ".join(few) or f"replication_factor is {replication_factor}"
        return warn("replicas", f"fewer than {_ENOUGH_REPLICAS}: {names}", "set replication_factor to 3, and add replicas")
    if behind:
        return warn("replicas", f"not in sync: {', '.join(behind)}", "check the brokers' logs")
    return ok("replicas", f"at least {_ENOUGH_REPLICAS} of each internal topic, all in sync")
