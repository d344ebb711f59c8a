"""Results made by hand, and a study that was run in a folder."""

from pathlib import Path

from small_studies import OF_MIXED, SMALL

from autorl.core.types import Config, Incumbent
from autorl.report import formats
from autorl.statistics import Interval, iqm
from autorl.study import Entry, Estimate, Result, Study
from autorl.study.spec import load_spec
from autorl.trainers import info
from autorl.trainers.info import TrainedRun

CONFIG = Config(lr=3e-4, layers=(64, 64), kind="a")
DEFAULT = Config(lr=1e-3, layers=(64,), kind="b")
STUDY = {
    **OF_MIXED,
    "trainer": SMALL["trainer"],
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}},
    "seeds": {"tuning": 2, "test": 5},
}
STUDY.pop("test")


def interval(low, high):
    return Interval(low, high, 0.95, "percentile")


def entry(label, proposal, tuning, values, span, config=CONFIG, failed=0, until=1000):
    seeds = {100 + index: value for index, value in enumerate(values)}
    mean = sum(values) / len(values)
    test = Estimate(mean, span, float(iqm(values)), span, seeds, failed)
    return Entry(label, proposal, ((0, config),), tuning, test, until)


def result(**changes):
    """Incumbent 7: tuning 95, test 80 [70, 90] on 5 seeds; default 0: test 50 [40, 60]; difference [20, 40]."""
    fields = {
        "objective": "last eval_return (mean over seeds), maximize",
        "aggregate": "mean",
        "direction": "maximize",
        "incumbent": Incumbent(((0, CONFIG),), 1000, 7),
        "tuning": 95.0,
        "entries": (
            entry("incumbent", 7, 95.0, [70.0, 75.0, 80.0, 85.0, 90.0], interval(70.0, 90.0)),
            entry(
                "default", 0, 55.0, [40.0, 45.0, 50.0, 55.0, 60.0], interval(40.0, 60.0), DEFAULT
            ),
        ),
        "difference": interval(20.0, 40.0),
        "front": (),
        "counts": {"scored": 30, "crash": 2},
        "folder": Path("studies/hand"),
        "tuning_seeds": 3,
    }
    return Result(**{**fields, **changes})


def run_study(folder: Path, **changes) -> Path:
    study = Study.create(load_spec({**STUDY, **changes}), folder)
    try:
        study.run()
    finally:
        study.close()
    return folder


def arguments(trainer, config, horizon, style="kwargs", environment=None):
    """Texts that `autorl best` prints of a whole run."""
    run = TrainedRun(trainer, config, horizon, horizon, environment or {})
    return formats.arguments(run, info(trainer.name), style)
