"""The placement of lanes on hosts: by the cores of each host, and where a lane was before if it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def placed(lanes: int, cores: Mapping[str, int], before: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the host of each lane. `cores` are those of the hosts that can be used, `before` is the last placement.

    Example:
        >>> placed(4, {"a": 1, "b": 1})
        ('a', 'a', 'b', 'b')
        >>> placed(4, {"a": 1, "c": 1}, before=("a", "a", "b", "b"))  # host b is gone
        ('a', 'a', 'c', 'c')
        >>> placed(4, {"a": 1, "b": 1, "c": 1}, before=("a", "a", "b", "b"))  # host c is new
        ('a', 'a', 'b', 'c')
    """
    if not cores:
        raise ValueError("no host to place lanes on")
    room = _shares(lanes, cores, [sum(host == one for host in before) for one in cores])
    hosts: list[str | None] = []
    for lane in range(lanes):
        host = before[lane] if lane < len(before) else None
        stays = host is not None and room.get(host, 0) > 0
        hosts.append(host if stays else None)
        if host is not None and stays:
            room[host] -= 1
    free = iter([host for host, count in room.items() for _ in range(count)])
    return tuple(next(free) if host is None else host for host in hosts)


def _shares(lanes: int, cores: Mapping[str, int], had: Sequence[int]) -> dict[str, int]:
    """Return how many lanes each host gets, in proportion to its cores; what is left over goes where most lanes are already."""
    total = sum(cores.values())
    shares = {host: lanes * count // total for host, count in cores.items()}
    left = {host: lanes * count % total for host, count in cores.items()}
    missing = [(shares[host] - kept, -left[host], host) for host, kept in zip(cores, had, strict=True) if left[host]]
    for _, _, host in sorted(missing)[: lanes - sum(shares.values())]:
        shares[host] += 1
    return shares
