"""Lanes are placed by the cores of hosts, and move only if they must."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.many_hosts import placed

HOSTS = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 4), min_size=1)


@given(lanes=st.integers(1, 60), changes=st.lists(HOSTS, min_size=1, max_size=5))
def test_every_host_has_its_share_and_lanes_stay_where_they_can(lanes: int, changes: list[dict[str, int]]) -> None:
    before: tuple[str, ...] = ()
    for cores in changes:
        after = placed(lanes, cores, before)
        assert len(after) == lanes
        shares = {host: lanes * count / sum(cores.values()) for host, count in cores.items()}
        for host, share in shares.items():
            assert math.floor(share) <= after.count(host) <= math.ceil(share)
        stayed = sum(one == other for one, other in zip(before, after, strict=False))
        could_stay = sum(min(before.count(host), math.floor(share)) for host, share in shares.items())
        assert stayed >= could_stay
        assert placed(lanes, cores, after) == after
        before = after


def test_without_hosts_there_is_no_placement() -> None:
    with pytest.raises(ValueError, match="no host"):
        placed(2, {})
