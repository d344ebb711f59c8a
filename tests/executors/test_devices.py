"""Shares of a machine, against brute force; no segment waits for ever."""

import itertools
import random
import re
from fractions import Fraction

import pytest

from autorl.core.types import FrozenMap, InputError, Resources
from autorl.executors.devices import (
    Allocator,
    Capacity,
    Placement,
    device_groups,
    most_at_once,
    shortage,
    variables,
)

SHARES = (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0)
CAPACITIES = (
    Capacity(cpu=4.0, memory_gb=8.0, groups=(("0", "1", "2"),)),
    Capacity(groups=(("0", "1"), ("2", "3"))),
    Capacity(cpu=1.5, groups=(("0",), ("1", "2"))),
    Capacity(memory_gb=3.0, groups=(("0",),)),
    Capacity(cpu=2.0),
)


def share(needs):
    return Fraction(str(needs.gpu))


def used(running, device):
    return sum(min(share(item.needs), 1) for item in running if device in item.devices)


def fits(capacity, running, needs):
    """Whether any choice of devices at all gives a segment what it needs, tried one by one."""
    for kind in ("cpu", "memory_gb"):
        have = getattr(capacity, kind)
        taken = [getattr(one, kind) or 0 for one in (needs, *(item.needs for item in running))]
        if have is not None and sum(Fraction(str(amount)) for amount in taken) > Fraction(have):
            return False
    if not capacity.groups or not needs.gpu:
        return True
    count = max(1, int(needs.gpu))
    return any(
        all(used(running, device) + min(share(needs), Fraction(1)) <= 1 for device in devices)
        for group in capacity.groups
        for devices in itertools.combinations(group, count)
    )


def check_shares(capacity, running):
    for group in capacity.groups:
        for device in group:
            assert used(running, device) <= 1
            holders = [item for item in running if device in item.devices]
            assert len(holders) <= 1 or all(item.needs.gpu < 1 for item in holders)
    for item in running if capacity.groups else ():
        group = {group for group in capacity.groups if set(item.devices) <= set(group)}
        assert len(set(item.devices)) == len(item.devices)
        assert bool(group)
        expected = 0 if not item.needs.gpu else max(1, int(item.needs.gpu))
        assert len(item.devices) == expected


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("seed", range(6))
def test_a_segment_is_placed_exactly_where_some_choice_of_devices_fits(capacity, seed):
    rng = random.Random(seed)
    allocator = Allocator(capacity)
    running: list[Placement] = []
    placed = 0
    for _ in range(150):
        if running and rng.random() < 0.45:
            allocator.release(running.pop(rng.randrange(len(running))))
        cpu, gpu = rng.choice((0.1, 0.5, 1.0, 2.0)), rng.choice(SHARES)
        needs = Resources(cpu, gpu, rng.choice((None, 0.5, 2.0)))
        possible = fits(capacity, running, needs)
        placement = allocator.place(needs)
        assert (placement is not None) == possible
        if placement is not None:
            placed += 1
            running.append(placement)
        check_shares(capacity, running)
    assert placed > 20
    for placement in running:
        allocator.release(placement)
    assert allocator.place(Resources(cpu=1.0, gpu=1.0 if capacity.groups else 0.0)) is not None


@pytest.mark.parametrize("seed", range(8))
def test_whoever_waits_longest_starts_though_others_never_stop_coming(seed):
    """Every place that is left is asked for at once by what is small or needs something else."""
    rng = random.Random(seed)
    capacity = Capacity(memory_gb=4.0, groups=(("0", "1"),))
    allocator = Allocator(capacity)
    large = Resources(gpu=2.0, memory_gb=4.0)
    small = [Resources(gpu=0.5), Resources(memory_gb=1.0), Resources(gpu=1.0), Resources()]
    running = []
    while (placement := allocator.place(rng.choice(small[:3]))) is not None:
        running.append(placement)
    waiting = [large]
    for _ in range(200):
        waiting += [rng.choice(small) for _ in range(3)]
        while (chosen := allocator.next(waiting)) is not None:
            position, placement = chosen
            if waiting.pop(position) == large:
                return
            running.append(placement)
        # The last to start ends first, as a rule: who began before may hold its place long.
        number = len(running) - 1 if rng.random() < 0.7 else rng.randrange(len(running))
        allocator.release(running.pop(number))
    raise AssertionError("the segment that waits longest never starts")


def test_others_start_before_a_segment_that_waits_if_they_need_nothing_it_lacks():
    allocator = Allocator(Capacity(cpu=8.0, groups=(("0", "1"),)))
    busy = allocator.place(Resources(gpu=1.0))
    large = Resources(gpu=2.0, cpu=4.0)
    waiting = [large, Resources(gpu=1.0), Resources(cpu=4.0), Resources(cpu=3.0)]
    chosen = allocator.next(waiting)
    # One GPU is free and kept for the first; of 7 cores it needs 4.
    assert chosen is not None
    assert (chosen[0], chosen[1].devices) == (3, ())
    assert allocator.next(waiting[:3]) is None
    assert busy is not None
    allocator.release(busy)
    started = allocator.next(waiting)
    assert started is not None
    assert (started[0], started[1].devices) == (0, ("0", "1"))


def test_small_segments_share_a_device_and_leave_the_others_whole():
    allocator = Allocator(Capacity(groups=(("0", "1"),)))
    quarters = [allocator.place(Resources(gpu=0.25)) for _ in range(4)]
    assert [item.devices for item in quarters if item is not None] == [("0",)] * 4
    whole = allocator.place(Resources(gpu=1.0))
    assert whole is not None
    assert whole.devices == ("1",)
    assert allocator.place(Resources(gpu=0.25)) is None


@pytest.mark.parametrize(
    ("capacity", "needs", "count"),
    [
        (Capacity(groups=(("0", "1", "2", "3"),)), [Resources(gpu=2.0)], 2),
        (Capacity(groups=(("0",),)), [Resources(gpu=0.25)], 4),
        (Capacity(groups=(("0",),)), [Resources(gpu=0.1)], 10),
        (Capacity(groups=(("0",),)), [Resources(gpu=0.3)], 3),
        (Capacity(groups=(("0", "1"), ("2",))), [Resources(gpu=2.0)], 1),
        (Capacity(cpu=2.0), [Resources(cpu=0.2)], 10),
        (Capacity(cpu=5.0, memory_gb=3.5), [Resources(memory_gb=1.0)], 3),
        (Capacity(cpu=4.0, groups=(("0", "1"),)), [Resources(gpu=1.0), Resources()], 4),
        (Capacity(groups=(("0", "1"),)), [Resources(gpu=1.0), Resources(gpu=0.5)], 4),
    ],
)
def test_how_many_run_at_once(capacity, needs, count):
    assert most_at_once(capacity, needs) == count


def test_entries_with_a_comma_are_groups_and_the_others_one():
    assert device_groups(["0", "cuda:1", 2, "0"]) == (("0", "1", "2"),)
    assert device_groups(["0,1", "cuda:2, 3"]) == (("0", "1"), ("2", "3"))
    assert device_groups(["0,1", "2", "0,1", 3]) == (("0", "1"), ("2", "3"))
    with pytest.raises(InputError, match=r"executor\.devices: device 1 is in two groups"):
        device_groups(["0,1", "1,2"])


@pytest.mark.parametrize(
    ("capacity", "needs", "message"),
    [
        (Capacity(groups=(("0", "1"),)), Resources(gpu=8.0), "gpu 8 GPUs .* but there are 2"),
        (Capacity(groups=(("0",), ("2", "3"))), Resources(gpu=3.0), "gpu 3 GPUs .* group .* has 2"),
        (Capacity(cpu=2.0), Resources(cpu=999.0), "cpu 999 cores .* has 2"),
        (Capacity(memory_gb=23.46), Resources(memory_gb=1e4), "memory_gb 10000 GiB .* has 23.5"),
        (Capacity(2.0, 4.0, (("0", "1"),)), Resources(2.0, 2.0, 4.0), ""),
        (Capacity(), Resources(999.0, 8.0, 1e4), ""),
    ],
)
def test_what_no_idle_machine_could_give_is_said(capacity, needs, message):
    assert re.fullmatch(message, " ".join(shortage(capacity, needs) or ()))


def test_the_variables_of_a_segment_name_its_devices_and_threads():
    counted = Capacity(groups=(("0", "1", "2"),))
    two = variables(Placement(Resources(gpu=2.0, cpu=4.7), ("1", "2")), counted)
    assert two["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert {value for name, value in two.items() if name.endswith("_THREADS")} == {"4"}
    assert variables(Placement(Resources()), counted) == {"CUDA_VISIBLE_DEVICES": ""}
    assert variables(Placement(Resources(custom=FrozenMap(a=1))), Capacity()) == {}
