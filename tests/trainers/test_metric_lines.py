"""Lines that training programs print, in our own words and numbers, and the records in them."""

import json
import math
import subprocess
import sys

import pytest
from patience import PATIENCE

from autorl.core.types import InputError, NotLoggedError
from autorl.trainers.metrics import Collector, MetricSource, number, parse_line

OPENRLHF = (
    "INFO 11-03 09:15:27 ppo_trainer.py:547] \N{SPARKLES} Global step 12: "
    "{'policy_loss': -0.0125, 'reward': np.float64(0.75), 'kl': tensor(0.031), 'return': 0.74, 'group_reward_std': nan}"
)
VERL = (
    "\x1b[36m(TaskRunner pid=48213)\x1b[0m step:20 - actor/pg_loss:-0.004 - critic/score/mean:0.4375 - "
    "val-core/openai/gsm8k/reward/mean@1:np.float64(0.28125) - response_length/clip_ratio:1e-05 - perf/mfu:nan"
)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"step": 3, "loss": 0.5}', {"step": 3, "loss": 0.5}),
        ("{'loss': '0.6931', 'epoch': '0.25'}\n", {"loss": "0.6931", "epoch": "0.25"}),
        ("\x1b[32m{'loss': 1.0}\x1b[0m", {"loss": 1.0}),
        ("step:4 - val/score:0.5", {"step": 4, "val/score": 0.5}),
        ("(RolloutWorker pid=7, ip=10.0.0.2) step:4 - a:1", {"step": 4, "a": 1.0}),
        ("[rank0]: {'loss': 2.0}", {"loss": 2.0}),
        ("[default0]:step:1 - a:2.5", {"step": 1, "a": 2.5}),
        ("Global step 2: {'reward': 1.5}", {"step": 2, "reward": 1.5}),
        ("return=-0.3\n", {"return": "-0.3"}),
        (
            "step=4 charts/return= 1.5 | note=a=b",
            {"step": "4", "charts/return": "1.5", "note": "a=b"},
        ),
        ("global_step=4, episodic_return=[9.]", {"global_step": "4", "episodic_return": "[9.]"}),
        (
            "Evaluation completed in 0:01:02, global_step 2, eval_metrics: {'eval_a_pass1': 0.5}",
            {"step": 2, "eval_a_pass1": 0.5},
        ),
    ],
)
def test_records(line, record):
    assert parse_line(line) == record


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Epoch 3: loss 0.5",
        "Epoch 3: loss=0.5",
        "Namespace(lr=0.1, seed=3)",
        "loss=",
        "[1, 2]",
        "{'loss': open('/etc/passwd')}",
        "{'loss': __import__('os').system('true')}",
        "step:4",
        "next step:4 is - nothing",
        "[rank1]: {'loss': 2.0}",
        "[default3]:step:1 - a:2.5",
        "Global step 2: loss 0.5",
        "{'loss': float64(1, 2)}",
    ],
)
def test_other_lines_and_other_ranks_are_no_records(line):
    assert parse_line(line) is None


@pytest.mark.parametrize(
    ("line", "values", "nan"),
    [
        (
            OPENRLHF,
            {"step": 12, "reward": 0.75, "kl": 0.031, "policy_loss": -0.0125},
            "group_reward_std",
        ),
        (
            VERL,
            {"step": 20, "critic/score/mean": 0.4375, "actor/pg_loss": -0.004}
            | {"val-core/openai/gsm8k/reward/mean@1": 0.28125, "response_length/clip_ratio": 1e-05},
            "perf/mfu",
        ),
    ],
)
def test_a_step_line_of_other_programs(line, values, nan):
    record = parse_line(line)
    assert {name: record[name] for name in values} == values
    assert math.isnan(record[nan])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((3, 3.0), ("0.2141", 0.2141), ("1e-3", 1e-3), ("-2", -2.0), ("np.float32(0.5)", 0.5)),
        ("inf", math.inf),
        *((value, None) for value in ("x", "", True, "True", None, [1], "1 + 1")),
    ],
)
def test_numbers_and_texts_of_numbers(value, expected):
    assert number(value) == expected


def test_not_a_number_is_a_number():
    assert math.isnan(number("nan"))


def collected(options, lines, points=(10, 20), until=20):
    collector = Collector(MetricSource.parse(options, 1), points, 0, until)
    done = [
        point for line in lines if (record := parse_line(line)) for point in collector.add(record)
    ]
    return done + collector.finish()


def test_values_of_trl_lines_are_text():
    """Lines that name no step all belong to the last step; the latest counts."""
    lines = [f"{{'loss': '0.7', 'rewards/margins': '{margin}'}}" for margin in (0.1, 0.3)]
    found = collected({"map": {"margin": "rewards/margins"}}, lines, points=(20,))
    assert found == [(20, {"margin": 0.3})]


def test_verl_lines_give_a_curve():
    lines = [f"step:{step} - val-core/gsm8k/acc/mean@1:0.{step}" for step in (5, 10, 15, 20)]
    found = collected({"map": {"accuracy": "val-core/gsm8k/acc/mean@1"}}, lines)
    assert found == [(10, {"accuracy": 0.1}), (20, {"accuracy": 0.2})]


def test_the_file_of_verl_is_json_lines_with_nested_data(tmp_path):
    rows = [{"step": step, "data": {"val-core/gsm8k/acc/mean@1": step / 100}} for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "from": "jsonlines",
        "path": "metrics.jsonl",
        "map": {"accuracy": "data.val-core/gsm8k/acc/mean@1"},
    }
    source = MetricSource.parse(options, 1)
    collector = Collector(source, (10, 20), 0, 20)
    done = [point for record in source.records(tmp_path, 20) for point in collector.add(record)]
    assert done + collector.finish() == [(10, {"accuracy": 0.1}), (20, {"accuracy": 0.2})]


def test_only_rank_0_reports_where_every_rank_prints():
    lines = [
        json.dumps({"step": step, "rank": rank, "score": step + rank})
        for step in (10, 20)
        for rank in (1, 0, 3)
    ]
    for options in ({}, {"map": {"score": "score"}}):
        found = collected({"rank": "rank", **options}, lines)
        assert found == [(10, {"score": 10.0}), (20, {"score": 20.0})]


def test_the_trainer_state_that_has_come_farthest_is_read(tmp_path):
    """Checkpoints hold the whole history each; text order would put checkpoint-9 last."""
    for last in (9, 20):
        folder = tmp_path / f"run/checkpoint-{last}"
        folder.mkdir(parents=True)
        history = [{"step": step, "eval_margin": -step} for step in (3, 9, 20) if step <= last]
        state = {"global_step": last, "log_history": history}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    source = MetricSource.parse({"from": "trainer_state", "map": {"margin": "eval_margin"}}, 1)
    assert [record["step"] for record in source.records(tmp_path, 20)] == [3, 9, 20]
    assert source.records(tmp_path / "run/checkpoint-9/nothing", 20) == []


_RANKS = """
import json, os
rank = int(os.environ["RANK"])
for step in (10, 20):
    print(json.dumps({"step": step, "rank": rank, "score": 100 * rank + step}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--local-ranks-filter", "0"], []])
def test_torchrun_with_two_ranks(tmp_path, flags):
    """A real launcher: either it shows rank 0 alone, or the option `rank` picks it from what all of them print."""
    pytest.importorskip("torch", reason="torchrun comes with torch")
    (tmp_path / "ranks.py").write_text(_RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [*flags, str(tmp_path / "ranks.py")]
    lines = subprocess.check_output(command, text=True, timeout=PATIENCE).splitlines()
    shown = [record for line in lines if (record := parse_line(line))]
    assert {record["rank"] for record in shown} == ({0} if flags else {0, 1})
    options = {} if flags else {"rank": "rank"}
    found = collected({"map": {"score": "score"}, **options}, lines)
    assert found == [(10, {"score": 10.0}), (20, {"score": 20.0})]


@pytest.mark.parametrize("scale", [0, -1.0, True, "256", math.inf])
def test_a_scale_of_steps_is_a_number_above_0(scale):
    with pytest.raises(
        InputError, match=r"trainer\.kwargs\.metrics\.step_scale: expected a number above 0"
    ):
        MetricSource.parse({"step_scale": scale}, 1)


@pytest.mark.parametrize(
    ("steps", "until", "fits"),
    [
        ((4, 8, 12, 16), 16, True),
        ((7, 14), 20, True),
        ((11,), 20, True),  # logs every 11 steps
        ((2048,), 1000, True),  # one long rollout
        ((2, 4), 16, False),
        ((8000, 16000), 1000, False),
    ],
)
def test_records_that_end_far_from_the_run_are_in_another_unit(steps, until, fits):
    collector = Collector(MetricSource(), (until // 2, until), 0, until)
    for step in steps:
        collector.add({"step": step, "score": float(step)})
    if fits:
        assert collector.finish()[-1] == (until, {"score": float(steps[-1])})
        return
    with pytest.raises(RuntimeError, match=f"the last record is of step {steps[-1]} of {until}"):
        collector.finish()


def test_records_without_a_step_have_no_unit():
    collector = Collector(MetricSource(step_scale=256), (8, 16), 0, 16)
    collector.add({"score": 2.0})
    assert collector.finish() == [(16, {"score": 2.0})]


def test_a_record_between_two_steps_of_the_study_is_of_the_later():
    collector = Collector(MetricSource(step_scale=0.125), (1, 2), 0, 2)
    records = ({"step": step, "score": float(step)} for step in (4, 8, 9, 16))
    points = [point for record in records for point in collector.add(record)]
    assert [*points, *collector.finish()] == [(1, {"score": 8.0}), (2, {"score": 16.0})]


def test_counts_of_records_are_added_up_over_a_segment():
    def ended(*records, key="n"):
        source = MetricSource(map={"score": "score"}, sum={"tokens": key})
        collector = Collector(source, (20,), 10, 20)
        for step, record in enumerate(records, start=11):
            collector.add({"step": step, **record})
        collector.finish()
        return collector.totals

    records = {"n": 3, "score": 1.0}, {"n": "4"}, {"score": 2.0}, {"n": float("nan")}
    assert ended(*records) == {"tokens": 7}
    with pytest.raises(NotLoggedError, match="the command logged nothing named 'm'"):
        ended(*records, key="m")
