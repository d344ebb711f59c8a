"""A study with `stop: learned` or `overoptimizing`: the same table with any workers, kills and failures."""

import numpy as np
import pytest
from scripted import Toy, run, toy_spec
from study_support import RACING, StoppedError, small_spec, stop_after

from autorl.core.types import InputError
from autorl.optimizers.priors.study_curves import SourceCurves, StudyCurves
from autorl.study import Study
from autorl.study.setup import check, trainer_loader

PART = np.array([0.25, 0.5, 0.75, 1.0])
LEVEL = np.linspace(0, 1, 40)[:, None]
CURVES = StudyCurves(
    (SourceCurves("kit", "kit", tuple(PART.tolist()), LEVEL * np.sqrt(PART)),)
).to_dict()
RULE = {
    "name": "random",
    "stop": "learned",
    "rungs": 3,
    "grace": 0,
    "peers": 2,
    "threshold": 0.4,
    "check": 3,
    "curve_data": CURVES,
}
LEARNED = {"optimizer": RULE}
FAILING = {**LEARNED, "trainer": {"crash": 0.2, "nan": {"above": {"x": 0.8}, "seeds": [1]}}}
MINIMIZED = {**LEARNED, "objective": {"metric": "eval_return", "direction": "minimize"}}
RACING = {**LEARNED, **RACING, "seeds": {"tuning": 3, "test": 0}}


def lengths(changes):
    """Steps of each run and its final score, in order."""
    study = Study.in_memory(small_spec(**changes))
    study.run()
    proposals = study.driver.lineage.proposals
    reached = {}
    for number, proposal in proposals.items():
        reached[proposal.meta.get("root", number)] = proposal.until
    study.close()
    return list(reached.values())


@pytest.mark.parametrize("changes", [LEARNED, FAILING, MINIMIZED, RACING])
def test_some_runs_are_stopped_and_some_are_not(changes):
    steps = lengths({"seeds": {"tuning": 2, "test": 0}, **changes})
    assert 100 in steps
    assert min(steps) < 100
    assert len(steps) > 8  # the budget of eight full runs


def spending(config, seed, step):
    """Gold by the law of over-optimisation, of a run that spends 4 x nats of KL."""
    distance = (4 * config["x"] * step / 100) ** 0.5
    gold = distance * (1 - 0.8 * np.log(max(distance, 1e-9)))
    return {"eval_return": float(gold), "kl": distance**2}


def test_kl_at_the_rung_is_recorded_and_a_resumed_study_decides_by_it_as_before(tmp_path):
    spec = toy_spec(
        optimizer={"name": "random", "stop": "overoptimizing"}, budget={"configurations": 16}
    )

    load = lambda trainer: Toy(curve=spending)  # noqa: E731

    def table(opened):
        run(opened)
        rows = opened.store.query("SELECT * FROM proposals ORDER BY proposal")
        (body, *_) = opened.store.query("SELECT body FROM event WHERE kind = 'scored'")
        opened.close()
        return rows, body

    rows, body = table(Study.create(spec, tmp_path / "whole", load))
    assert '"watched":{"kl":[' in body[0]
    assert 16 < len(rows) < 32, "some go on, others do not"
    cut = Study.create(spec, tmp_path / "cut", load)
    stop_after(cut, 60)
    with pytest.raises(StoppedError):
        run(cut)
    cut.close()
    assert table(Study.open(tmp_path / "cut", load)) == (rows, body)


def test_a_trainer_without_kl_is_refused():
    spec = small_spec(optimizer={"name": "random", "stop": "overoptimizing"})
    with pytest.raises(InputError, match=r"optimizer.stop: unknown metric 'kl'"):
        check(spec, trainer_loader(spec))
