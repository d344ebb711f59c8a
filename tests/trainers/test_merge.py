"""`rlhf/merge`: its formulas on small tensors, and a merge of two policies."""

import math
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra rlhf")

import torch
from rlhf_support import one_thread, write_policy  # noqa: F401
from segments import segment, train
from test_trl_contract import task as task_of_contract

from autorl.core.types import InputError
from autorl.trainers import load
from autorl.trainers.language.merging import merged, slerp
from autorl.trainers.language.models import load_policy

task = task_of_contract
A, B, C = (
    torch.tensor(one)
    for one in ([[2.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]], [[0.0] * 2, [2.0, 0.0]])
)
START = torch.full((2, 2), 5.0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, A), (0.5, (A + B) / math.sqrt(2)), (1.0, B)])
def test_on_the_sphere_the_norm_stays(share, expected):
    assert torch.allclose(slerp(A, B, share), expected, atol=1e-6)
    assert float(slerp(A, B, share / 3).norm()) == pytest.approx(2.0)
    for other in (A, 3 * A, -A, 0 * A):  # no angle, or none that is one
        assert torch.equal(slerp(A, other, share), torch.lerp(A, other, share))


def test_equal_parts_of_three_are_merged_one_after_the_other_and_averages_are_averages():
    weights = [START + one for one in (A, B, C)]
    by_hand = slerp(slerp(A, B, 1 / 2), C, 1 / 3)
    found = merged(START, weights, (1, 1, 1), 0.3, "slerp")
    assert torch.allclose(found, START + 0.3 * by_hand)
    found = merged(START, weights, (0, 1, 3), 0.5, "average")
    assert torch.allclose(found, START + 0.5 * (B + 3 * C) / 4)
    assert torch.allclose(merged(START, weights, (0, 2, 0), 1.0, "slerp"), weights[1])


def test_policies_are_merged_evaluated_and_saved(task, tmp_path):
    for seed in (1, 2):
        write_policy(tmp_path / str(seed), seed=seed)
    options = {"models": [str(tmp_path / "1"), str(tmp_path / "2")]}
    values = {"ratio": (1.0, 3.0), "eta": 0.5, "method": "average"}
    outcome = train(segment("rlhf/merge", task, values, 1, tmp_path / "one", options, episodes=4))
    places = (outcome.checkpoint.path, task.kwargs["model"], tmp_path / "1", tmp_path / "2")
    for found, *parts in zip(*(load_policy(Path(one)).parameters() for one in places), strict=True):
        start, first, second = parts
        assert torch.allclose(found, start / 2 + first / 8 + 3 * second / 8, atol=1e-6)
    assert outcome.applied.items() >= values.items()
    assert outcome.reports[0].metrics["kl"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "a"}, "expected two folders or more"),
        ({"models": ["a", "nowhere"]}, "no folder of a model"),
        ({"eta": -1}, "expected a number of at least 0"),
        ({"method": "mean"}, "expected slerp or average"),
        ({"ratio": [1]}, "expected 2 numbers >= 0"),
    ],
)
def test_what_is_no_merge_is_refused(options, message, task):
    models = {"models": [task.kwargs["model"]] * 2}
    with pytest.raises(InputError, match=message):
        load(segment("rlhf/merge", options=models | options).trainer).check_configuration({})
