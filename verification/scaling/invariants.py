"""What must hold for groups with a decision record, in every world and after a restart from it."""

from __future__ import annotations

from verification.scaling.decided_groups import (
    Bug,
    Decision,
    Driver,
    Identity,
    Kafka,
    Phase,
    Row,
    Size,
    Steps,
    World,
    home,
    is_whole,
)

RUNNING = (Phase.WRITE, Phase.PROPOSE, Phase.DECIDE, Phase.COMPLETE, Phase.ABORT, Phase.DONE)


def lost(kafka: Kafka, decision: Decision, size: Size) -> set[Identity]:
    """Return the transactions of a decision that were not committed, and can no longer be."""
    row, start = Row(decision.epoch, decision.attempt), home(decision.start, size)
    return {
        Identity(start, group, generation)
        for group, (found, generation) in enumerate(zip(kafka.ids[start], decision.generations, strict=True))
        if row not in found.visible and (found.generation != generation or found.open is None)
    }


def violation(world: World, size: Size) -> str | None:
    """Return what is wrong with a world, None if nothing is."""
    kafka = world.kafka
    if [decision.epoch for decision in kafka.decisions] != list(range(1, len(kafka.decisions) + 1)):
        return "an epoch is decided twice, or left out"
    decided = {Row(decision.epoch, decision.attempt) for decision in kafka.decisions}
    for group in range(size.groups):
        visible = [row for ids in kafka.ids for row in ids[group].visible]
        if not decided.issuperset(visible):
            return "rows are visible that nobody has decided"
        if len({row.epoch for row in visible}) < len(visible):
            return "rows of an epoch are visible twice"
    if any(not lost(kafka, decision, size) <= kafka.expired for decision in kafka.decisions):
        return "decided rows are lost, and their transaction has not timed out"
    said = (_violation_of(driver, kafka, size) for driver in world.drivers)
    return next(filter(None, said), None)


def _violation_of(driver: Driver, kafka: Kafka, size: Size) -> str | None:
    if driver.phase is Phase.HOLE and not lost(kafka, kafka.decisions[driver.known], size):
        return "a hole is reported where there is none"
    if driver.phase not in RUNNING:
        return None
    past = kafka.decisions[: driver.known + (driver.phase is not Phase.COMPLETE)]
    if not all(is_whole(kafka, decision, size) for decision in past):
        return "the application runs on although decided rows are not visible"
    if any(found.open is not None for ids in kafka.ids[: home(driver.start, size)] for found in ids):
        return "the application runs, and an older start's transaction holds readers up"
    return None


def violation_after_restart(kafka: Kafka, size: Size) -> str | None:
    """Return what is wrong if all drivers die now and one starts alone; None if nothing is."""
    was_lost = any(lost(kafka, decision, size) for decision in kafka.decisions)
    driver = Driver(known=len(kafka.decisions) - 1 if size.bug is Bug.READ_BEFORE_FENCE else -1)
    while (step := next(Steps(size, kafka, driver).next(), None)) is not None:
        _, kafka, driver = step
    expected = Phase.HOLE if was_lost else Phase.DONE
    if driver.phase is not expected:
        return f"decided rows are {'' if was_lost else 'not '}lost, and a restart ends with: {driver.phase.value}"
    return violation(World(0, 0, kafka, (driver,)), size)
