"""`rlhf/ppo` and its earlier name `trl/ppo` are one trainer: the same numbers, the same checkpoints."""

from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="needs the extra rlhf")

from autorl.trainers import load
from autorl.types import Config, EnvironmentSpec, FrozenMap, InputError, Segment, TrainerSpec

TASK = EnvironmentSpec("sort-verifiable", FrozenMap({"digits": 2, "sft_steps": 5}))
CONFIG = Config({"learning_rate": 1e-3, "batch_size": 8, "num_ppo_epochs": 1})
EARLIER = TrainerSpec("trl/ppo")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def segment(folder, **changes):
    values = {
        "id": folder.name,
        "trainer": TrainerSpec("rlhf/ppo"),
        "environment": TASK,
        "config": CONFIG,
        "seed": 3,
        "role": "tuning",
        "until": 1,
        "horizon": 2,
        "evaluate_at": (1,),
        "episodes": 8,
        "save": True,
        "folder": str(folder),
    }
    return Segment(**(values | changes))


def train(one):
    return load(one.trainer).train(one, lambda report: None)


def test_either_name_trains_the_same_numbers_and_goes_on_from_the_other(tmp_path):
    first = train(segment(tmp_path / "first"))
    earlier = train(segment(tmp_path / "earlier", trainer=EARLIER))
    assert earlier.reports[0].metrics == first.reports[0].metrics
    second = segment(tmp_path / "second", start=1, until=2, evaluate_at=(2,), save=False)
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
