"""The size of epochs: it grows from a small first one, as far as bytes, time and failures allow."""

from __future__ import annotations

import pytest

from penstock.runtime.loop.epoch_size import CALM_EPOCHS, FIRST_RECORDS, GROWTH, EpochSize
from penstock.runtime.loop.share import take

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
MB = 1 << 20


def sized(records: int = 500_000, size: int = 100 * MB) -> EpochSize:
    return EpochSize(records, size, target_s=4.0)


def taken(of: EpochSize, there: int = 10**7) -> int:
    """How many records the next epoch takes of one partition that has enough of them."""
    return take({A0: 0}, {A0: there}, (), of.room)[A0]


def grown(of: EpochSize, seconds_per_record: float, epochs: int = 30) -> int:
    """The size that epochs reach if a record takes so long."""
    for _ in range(epochs):
        records = taken(of)
        of.went_well(records, 0.1 + records * seconds_per_record)
    return taken(of)


class TestGrowth:
    def test_the_first_epoch_of_a_start_is_small(self) -> None:
        assert taken(sized()) == FIRST_RECORDS
        assert taken(sized(records=10)) == 10

    def test_epochs_grow_by_a_factor_while_they_are_quick(self) -> None:
        found = sized()
        sizes = []
        for _ in range(8):
            sizes.append(taken(found))
            found.went_well(sizes[-1], 0.2)
        assert sizes == [FIRST_RECORDS * GROWTH**n for n in range(7)] + [500_000]

    @pytest.mark.parametrize("ms", [0.05, 1, 5, 200])
    def test_epochs_approach_the_target_time(self, ms: float) -> None:
        seconds = grown(sized(), ms / 1_000) * ms / 1_000
        assert 3 <= seconds <= 5

    def test_the_fixed_cost_of_an_epoch_does_not_keep_epochs_small(self) -> None:
        """A busy machine takes two of the four seconds for an empty epoch."""
        found = sized()
        sizes = []
        for _ in range(9):
            sizes.append(taken(found))
            found.went_well(sizes[-1], 2.0 + sizes[-1] * 4e-6)
        assert sizes[-1] > 400_000

    def test_the_slow_first_epoch_does_not_count(self) -> None:
        found = sized()
        found.went_well(FIRST_RECORDS, 25.0)
        assert taken(found) == FIRST_RECORDS
        found.went_well(FIRST_RECORDS, 25.0)
        assert taken(found) == FIRST_RECORDS // 2

    def test_a_few_fast_records_do_not_make_the_next_epoch_large(self) -> None:
        found = sized()
        for _ in range(50):
            found.went_well(3, 0.05)
        assert taken(found) == FIRST_RECORDS

    def test_a_few_slow_records_make_it_small(self) -> None:
        found = sized()
        grown(found, 0.00001)
        for _ in range(12):
            records = min(100, taken(found))
            found.went_well(records, records * 0.5)
        assert taken(found) < 20

    @pytest.mark.parametrize("fixed_s", [3, 5, 8, 50])
    @pytest.mark.parametrize("ms", [0.01, 0.5])
    def test_a_slow_machine_does_not_make_epochs_small(self, fixed_s: float, ms: float) -> None:
        """Fewer records would not make such an epoch faster, and input would only wait longer."""
        found = sized()
        for _ in range(30):
            records = taken(found)
            found.went_well(records, fixed_s + records * ms / 1_000)
        assert taken(found) >= min(500_000, 3 / ms * 1_000)

    def test_a_machine_that_becomes_slow_does_not_either(self) -> None:
        found = sized()
        for _ in range(30):
            found.went_well(taken(found), 0.2 + taken(found) * 1e-4)
        for _ in range(30):
            found.went_well(taken(found), 20 + taken(found) * 1e-4)
        assert taken(found) > 20_000


class TestBytes:
    def test_the_bytes_of_records_limit_an_epoch(self) -> None:
        found = sized(size=100 * MB)
        found.read({A0: (1_000, 1_000 * 4_096)})
        assert grown(found, 1e-6) == 100 * MB // 4_096

    def test_record_sizes_are_per_partition_and_a_new_one_has_that_of_its_topic(self) -> None:
        found = sized()
        found.read({A0: (10, 1_000), B0: (10, 50_000)})
        assert (found.bytes_of(A0), found.bytes_of(A1), found.bytes_of(B0)) == (100, 100, 5_000)
        assert found.bytes_of(("c", 0)) == 5_000

    def test_larger_records_count_at_once_and_smaller_ones_gradually(self) -> None:
        found = sized()
        found.read({A0: (100, 10_000)})
        found.read({A0: (2, 20_000)})
        assert found.bytes_of(A0) == 10_000
        found.read({A0: (100, 10_000)})
        assert 100 < found.bytes_of(A0) <= 5_100
        for _ in range(20):
            found.read({A0: (100, 10_000)})
        assert found.bytes_of(A0) == pytest.approx(100, abs=1)

    def test_the_output_of_records_limits_an_epoch_too(self) -> None:
        found = EpochSize(500_000, 100 * MB, first_records=10_000)
        found.read({A0: (1_000, 100_000)})
        found.sent(1_000, 100 * MB)
        assert taken(found) == 1_000
        found.sent(1_000, 200 * MB)
        assert 500 < taken(found) < 700


class TestFailures:
    def test_an_epoch_that_was_too_large_is_halved_down_to_one_record(self) -> None:
        found = sized()
        sizes: list[int] = []
        while not sizes or sizes[-1] > 1:
            sizes.append(taken(found))
            found.was_too_large(sizes[-1])
        assert sizes == [64, 32, 16, 8, 4, 2, 1]
        assert taken(found) == 1

    def test_one_that_took_too_long_is_cut_to_what_the_target_time_allows(self) -> None:
        found = sized()
        grown(found, 1e-6)
        found.job_took(200_000, 240.0)
        found.was_too_large(200_000)
        assert taken(found) == pytest.approx(200_000 * 4.0 / 240.0, rel=0.01)

    def test_for_a_while_no_epoch_is_as_large_again(self) -> None:
        found = sized()
        grown(found, 1e-7, epochs=3)
        failed = taken(found)
        found.was_too_large(failed)
        sizes = []
        for _ in range(CALM_EPOCHS + 1):
            sizes.append(taken(found))
            found.went_well(sizes[-1], 0.1)
        assert set(sizes[:CALM_EPOCHS]) == {failed // 2}
        assert sizes[CALM_EPOCHS] > failed // 2

    def test_after_the_record_is_given_up_epochs_grow_at_once(self) -> None:
        found = sized()
        while taken(found) > 1:
            found.was_too_large(taken(found))
        found.was_given_up()
        assert grown(found, 1e-7, epochs=10) == 500_000

    def test_after_a_single_record_that_was_too_large_epochs_grow_again(self) -> None:
        found = sized()
        while taken(found) > 1:
            found.was_too_large(taken(found))
        assert grown(found, 1e-7, epochs=CALM_EPOCHS + 12) == 500_000


class TestTimeOfAJob:
    def test_it_follows_the_last_job_that_was_long_enough_to_tell(self) -> None:
        found = sized()
        assert found.job_s(1_000) == 0
        found.job_took(64, 0.33)
        assert found.job_s(800) == pytest.approx(4.0)
        found.job_took(1, 0.009)
        assert found.job_s(800) == pytest.approx(4.0)
        found.job_took(800, 0.018)
        assert found.job_s(2_000) == pytest.approx(0.02)
