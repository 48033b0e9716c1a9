"""Binds a topology to an application: its serdes to the schema registry, those of stores to their changelogs, and own topics.

Sources and sinks bind theirs to topics themselves, because a function may choose a sink's topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from penstock.errors import ConfigError
from penstock.processor import Operator
from penstock.serdes import Serde
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.serde import connected, needs_registry
from penstock.state import StoreSpec
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def changelog_topic(application_id: str, store: str) -> str:
    """Return the name of a store's changelog, by Kafka Streams' rule."""
    return f"{application_id}-{store}-changelog"


def contents_topic(application_id: str, topic: str) -> str:
    """Return the name of the topic that has the rows of a global table, by its name within the topology."""
    return f"{application_id}-{topic}"


def bound_nodes(nodes: Mapping[str, Node], registry: Registry | None, application_id: str | None = None) -> dict[str, Node]:
    """Return the nodes with the registry, for tasks, which neither load nor deliver; raise if one needs it and there is none.

    With an application id, names of the application's own topics are those in Kafka.
    """
    return {name: _bound(node, registry, application_id) for name, node in nodes.items()}


def bound_specs(specs: Mapping[str, StoreSpec], application_id: str, registry: Registry | None) -> dict[str, StoreSpec]:
    """Return the stores with the registry, and with values in the form of their changelog's topic.

    Keys keep the form that they have everywhere within Penstock, which decides their shard.
    """
    return {name: _bound_spec(spec, changelog_topic(application_id, name), registry) for name, spec in specs.items()}


def _bound(node: Node, registry: Registry | None, application_id: str | None) -> Node:
    if isinstance(node, ProcessorNode):
        operator = _bound_operator(node.operator, registry)
        return node if operator is node.operator else replace(node, operator=operator)
    if isinstance(node, SinkNode) and node.target is not None:
        node = replace(node, target=None)
    if isinstance(node, SourceNode) and node.backfill is not None:
        node = replace(node, backfill=None)
    if isinstance(node, SourceNode) and node.contents is not None:
        own = node.topics if application_id is None else tuple(contents_topic(application_id, topic) for topic in node.topics)
        node = replace(node, contents=None, topics=own)
    if not needs_registry(node.key) and not needs_registry(node.value):
        return node
    if registry is None:
        raise _missing(f"{node.name} (declared at {node.line})")
    return replace(node, key=connected(node.key, registry), value=connected(node.value, registry))


def _bound_operator(operator: Operator, registry: Registry | None) -> Operator:
    """Return an operator whose own serdes have the registry. They write the plain form, but a schema may refer to others."""
    if registry is None:
        return operator
    found = dict(_own_serdes(operator))
    changed: Any = operator
    return replace(changed, **{name: connected(serde, registry) for name, serde in found.items()}) if found else operator


def _own_serdes(operator: Any) -> Iterator[tuple[str, Serde[Any]]]:
    for each in fields(operator) if is_dataclass(operator) else ():
        serde = getattr(operator, each.name)
        if isinstance(serde, Serde) and needs_registry(serde):
            yield each.name, serde


def _bound_spec(spec: StoreSpec, changelog: str, registry: Registry | None) -> StoreSpec:
    old = None if spec.migration is None else spec.migration.value
    if not (needs_registry(spec.key) or needs_registry(spec.value) or needs_registry(old)):
        return spec
    if registry is None:
        raise _missing(f"store {spec.name!r}")
    if spec.migration is not None and old is not None:
        connected_old = connected(old, registry).for_topic(changelog, is_key=False)
        spec = replace(spec, migration=replace(spec.migration, value=connected_old))
    key = None if spec.key is None else connected(spec.key, registry)
    value = None if spec.value is None else connected(spec.value, registry).for_topic(changelog, is_key=False)
    return replace(spec, key=key, value=value)


def _missing(who: str) -> ConfigError:
    return ConfigError(
        f'schema_registry: "url" is missing, but {who} has a serde with schemas in a registry. Set it in penstock.toml, '
        f"PENSTOCK_SCHEMA_REGISTRY_URL or schema_registry_url=."
    )
