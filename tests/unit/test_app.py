"""`App`: a topology and its name."""

from __future__ import annotations

import pytest

from penstock import App, Topology, TopologyError


@pytest.mark.parametrize("name", ["word-count", "a", "Orders_2.v1", "x" * 200])
def test_an_application_id_may_be_what_a_topic_may_be(name: str) -> None:
    topology = Topology()
    app = App(name, topology)
    assert (app.application_id, app.topology) == (name, topology)


@pytest.mark.parametrize("name", ["", "word count", "a/b", "é", "x" * 201, "a\n"])
def test_any_other_application_id_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="an application id is made of letters, digits"):
        App(name, Topology())
