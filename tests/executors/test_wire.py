"""Segments, reports and outcomes come back from JSON as they were, and nothing else is read."""

import dataclasses
import json
import math

import numpy as np
import pytest

from autorl.executors.wire import (
    dumps,
    loads,
    outcome_from_json,
    outcome_to_json,
    report_from_json,
    report_to_json,
    segment_from_json,
    segment_to_json,
)
from autorl.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    Fence,
    FrozenMap,
    InputError,
    Outcome,
    Report,
    Resources,
    Segment,
    SegmentId,
    Status,
    TrainerSpec,
)

FENCE = Fence(epoch=3, attempt=2, study="ppo")
PARENT = Checkpoint(
    SegmentId(4, 1, 250), "checkpoints/4.1@250-3-0", FrozenMap({"model/weights.npz": "ab12"}), 17
)
# No field has its default.
SEGMENT = Segment(
    id=SegmentId(12, 3, 500),
    trainer=TrainerSpec("sb3/ppo", FrozenMap(policy="Mlp", net={"pi": [64, 64], "on": {"a": 1}})),
    environment=EnvironmentSpec(
        "CartPole-v1",
        FrozenMap(gravity=9.8),
        ("module:Class", FrozenMap({"module:Other": FrozenMap(k=(1, 2))})),
        4,
        FrozenMap(norm_reward=False),
        "subproc",
    ),
    config=Config(rate=3e-4, size=64, kind="a", layers=(64, 32), flag=True, none=None),
    seed=3,
    role="test",
    parent=PARENT,
    start=250,
    until=500,
    horizon=1000,
    evaluate_at=(300, 500),
    episodes=8,
    fork=17,
    save=True,
    folder="checkpoints/12.3@500-3-2",
    log="logs/12.3@500.log",
    scratch="checkpoints/.tmp-12.3@500-3-2",
    trust=True,
    storage="s3://bucket/ppo/checkpoints/12.3@500-3-2",
    fence=FENCE,
    resources=Resources(2.0, 0.25, 8.0, 2, FrozenMap(licence=1)),
)
REPORTS = (
    Report(SEGMENT.id, 300, {"eval_return": 0.1 + 0.2, "episodes": 8}, FENCE),
    Report(SEGMENT.id, 500, {"eval_return": -0.0, "loss": 5e-324}, FENCE),
)
OUTCOME = Outcome(
    segment=SEGMENT.id,
    status=Status.STOPPED,
    reached=512,
    reports=REPORTS,
    cost={"environment_steps": 262, "wall_seconds": 1.5},
    checkpoint=Checkpoint(SEGMENT.id, "checkpoints/12.3@500-3-2", FrozenMap({"a": "b"}), 3),
    applied={"rate": 3e-4, "layers": (64, 32)},
    notes=("episodes start anew",),
    message="a line\nand a lone surrogate \ud800",
    damage="weights.npz is missing",
    fence=FENCE,
    host="node17",
    preempted=True,
)


def through(value, write, read):
    return read(loads(dumps(write(value))), "queue/file")


def test_a_segment_comes_back_as_it_was():
    again = through(SEGMENT, segment_to_json, segment_from_json)
    assert again == SEGMENT
    assert (again.id.proposal, again.id.seed, again.id.end) == (12, 3, 500)
    assert type(again.config) is Config
    assert type(again.config["size"]) is int
    assert again.config["flag"] is True
    assert hash(again.environment) == hash(SEGMENT.environment)  # frozen to the last list


def test_a_segment_with_defaults_comes_back_as_it_was():
    bare = Segment(
        id=SegmentId(0, 0),
        trainer=TrainerSpec("synthetic"),
        config=Config(),
        seed=0,
        role="tuning",
        until=10,
        horizon=10,
    )
    assert through(bare, segment_to_json, segment_from_json) == bare


@pytest.mark.parametrize("normalize", [True, False])
def test_normalize_is_a_truth_value_or_a_mapping(normalize):
    segment = dataclasses.replace(SEGMENT, environment=EnvironmentSpec(normalize=normalize))
    again = through(segment, segment_to_json, segment_from_json)
    assert again.environment.normalize is normalize


@pytest.mark.parametrize(
    ("value", "write"),
    [(SEGMENT, segment_to_json), (REPORTS[0], report_to_json), (OUTCOME, outcome_to_json)],
    ids=["segment", "report", "outcome"],
)
def test_every_field_is_written_and_none_of_the_example_has_its_default(value, write):
    fields = dataclasses.fields(value)
    assert list(write(value)) == [field.name for field in fields]
    for field in fields:
        assert getattr(value, field.name) != field.default, field.name


def test_an_outcome_and_a_report_come_back_as_they_were():
    assert through(OUTCOME, outcome_to_json, outcome_from_json) == OUTCOME
    assert through(REPORTS[0], report_to_json, report_from_json) == REPORTS[0]
    failed = Outcome(SegmentId(1, 0), Status.OUT_OF_MEMORY, 0)
    assert through(failed, outcome_to_json, outcome_from_json) == failed


def test_numbers_keep_every_bit_also_where_they_are_no_numbers():
    values = {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "tenth": 0.1, "whole": 3}
    again = through(Report(SegmentId(0, 1), 5, values), report_to_json, report_from_json).metrics
    assert math.isnan(again["nan"])
    assert (again["inf"], again["minus"], again["tenth"]) == (math.inf, -math.inf, 0.1)
    assert type(again["whole"]) is int


def test_scalars_of_numpy_become_those_of_python():
    report = Report(SegmentId(0, 1), 5, {"a": np.float64(0.1), "b": np.float32(0.5)})
    again = through(report, report_to_json, report_from_json).metrics
    assert dict(again) == {"a": 0.1, "b": 0.5}
    assert [type(value) for value in again.values()] == [float, float]


def test_what_json_has_no_form_for_is_an_error_where_it_is_written():
    outcome = Outcome(SegmentId(1, 0), Status.DONE, 0, applied={"x": {1, 2}})
    with pytest.raises(TypeError, match="cannot be sent to another machine"):
        outcome_to_json(outcome)


def changed(**changes):
    return {**segment_to_json(SEGMENT), **changes}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed(pickle="gASV"), "unknown key 'pickle'; expected id, trainer"),
        ({key: value for key, value in changed().items() if key != "seed"}, "seed: the key is"),
        (changed(fence={"epoch": 1, "attempt": 0}), "fence.study: the key is missing"),
        (changed(trainer={"name": "x", "kwargs": {}, "load": "y"}), "trainer: unknown key 'load'"),
        (changed(seed="3"), "seed: expected a whole number, got '3'"),
        (changed(seed=True), "seed: expected a whole number, got True"),
        (changed(seed=3.0), "seed: expected a whole number, got 3.0"),
        (changed(role="held-out"), "role: expected one of tuning, test, got 'held-out'"),
        (changed(config=[1]), "config: expected a mapping"),
        (changed(evaluate_at=[1, "2"]), "evaluate_at[1]: expected a whole number"),
        (changed(evaluate_at=7), "evaluate_at: expected a list"),
        (changed(parent=3), "parent: expected a mapping"),
        (changed(log=3), "log: expected a text"),
        (changed(id="12"), "id: expected a segment such as 12.3"),
        (changed(id="../../x"), "id: expected a segment such as 12.3"),
        (changed(id="1_2.3"), "id: expected a segment such as 12.3"),
        (changed(id="-1.3"), "id: expected a segment such as 12.3"),
        ([], "expected a mapping"),
    ],
)
def test_anything_else_is_one_line_that_names_file_and_key(data, words):
    with pytest.raises(InputError) as error:
        segment_from_json(data, "queue/a")
    assert str(error.value).startswith("queue/a: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_outcome_of_no_known_status_is_refused():
    data = {**outcome_to_json(OUTCOME), "status": "won"}
    with pytest.raises(InputError, match="status: expected one of done, stopped"):
        outcome_from_json(data, "queue/a")
    with pytest.raises(InputError, match=r"queue/a: reports\[0\].metrics.x: expected a number"):
        outcome_from_json(
            {
                **outcome_to_json(OUTCOME),
                "reports": [{**report_to_json(REPORTS[0]), "metrics": {"x": "1"}}],
            },
            "queue/a",
        )


@pytest.mark.parametrize("text", ["", "{", "\x80\x04", "[" * 100_000, "[1]", "3"])
def test_what_is_no_json_object_is_one_line(text):
    with pytest.raises(InputError) as error:
        loads(text, "queue/a")
    assert str(error.value).startswith("queue/a: ")


def test_the_text_is_json_of_one_line():
    text = dumps(outcome_to_json(OUTCOME))
    assert "\n" not in text
    assert json.loads(text)["fence"] == {"epoch": 3, "attempt": 2, "study": "ppo"}
