"""`rlhf/ppo` and its earlier name `trl/ppo` are one trainer: the same numbers, the same checkpoints."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="needs the extra rlhf")

from segments import segment, train

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.trainers import load

TASK = EnvironmentSpec("sort-verifiable", FrozenMap({"digits": 2, "sft_steps": 5}))
CONFIG = Config({"learning_rate": 1e-3, "batch_size": 8, "num_ppo_epochs": 1})
EARLIER = TrainerSpec("trl/ppo")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def one_segment(folder, trainer="rlhf/ppo", until=1, **changes):
    of_run = {"horizon": 2, "seed": 3, "episodes": 8}
    return segment(trainer, TASK, CONFIG, until, folder, **of_run | changes)


def test_either_name_trains_the_same_numbers_and_goes_on_from_the_other(tmp_path):
    first = train(one_segment(tmp_path / "first"))
    earlier = train(one_segment(tmp_path / "earlier", trainer=EARLIER))
    assert earlier.reports[0].metrics == first.reports[0].metrics
    second = one_segment(tmp_path / "second", start=1, until=2, evaluate_at=(2,), save=False)
    ends = [
        train(replace(second, parent=parent.checkpoint, trainer=trainer)).reports[-1].metrics
        for parent, trainer in ((first, EARLIER), (earlier, second.trainer))
    ]
    assert ends[0] == ends[1]
    assert ends[0] != first.reports[0].metrics


@pytest.mark.parametrize("name", ["rlhf/ppo", "trl/ppo"])
def test_errors_say_the_name_that_was_given(name):
    with pytest.raises(InputError, match=f"unknown hyperparameter of {name} 'clip_range'"):
        load(TrainerSpec(name)).check(TASK, ["clip_range"])
