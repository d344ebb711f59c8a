"""Segments of TRL in two processes: equal to one, cut and continued, and what happens where a rank ends."""

import json
import os
import signal
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

import torch
from accelerate.utils import gather_object
from rlhf_support import one_thread  # noqa: F401
from segments import refusal, run, run_well, segment
from trl import DPOConfig, DPOTrainer, GRPOTrainer

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, Resources, TrainerSpec
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.testing.segments import Case, Runner, check_halves
from autorl.trainers import load, registry
from autorl.trainers.trl.methods import find
from autorl.trainers.trl.settings import Settings
from autorl.trainers.trl.trainer import TRLTrainer

LETTERS = EnvironmentSpec("letters-goldproxy")
PAIRS = EnvironmentSpec("letters-pairs")
TWO = {"processes": 2}
DYING = {**TWO, "algorithm_class": "test_trl_ranks:DyingTrainer"}
BATCH = {"per_device_train_batch_size": 16}
RATE = {"learning_rate": {"type": "float", "lower": 1e-4, "upper": 1e-3}}
pytestmark = pytest.mark.cpu_seconds(600)  # the first to run builds the task


class SameTrainer(GRPOTrainer):
    """Draws the completions of all ranks on each, from one stream."""

    def _generate_single_turn(self, prompts, *rest):
        every = gather_object(prompts)
        with torch.random.fork_rng():
            torch.manual_seed(self.state.global_step)
            drawn, _ = super()._generate_single_turn(every, *rest)
        begin = self.args.process_index * len(prompts)
        return drawn[begin : begin + len(prompts)], None


@dataclass
class DyingConfig(DPOConfig):
    mark: str = ""
    number: int = 0


class DyingTrainer(DPOTrainer):
    """Ends rank 1 at its second step, once, and says who is left of it at the next try."""

    def training_step(self, *arguments):
        mark = Path(self.args.mark)
        if self.args.process_index == 0 or self.state.global_step != 1:
            return super().training_step(*arguments)
        if mark.exists():
            ranks = json.loads(mark.read_text())
            mark.write_text(json.dumps([pid for pid in ranks if psutil.pid_exists(pid)]))
            return super().training_step(*arguments)
        mark.write_text(json.dumps([rank.pid for rank in psutil.Process().parent().children()]))
        if not self.args.number:
            raise torch.OutOfMemoryError("CUDA out of memory")
        os.kill(os.getpid(), self.args.number)


def small(trainer, environment, steps, **options):
    config = {"learning_rate": 1e-3} | ({"num_generations": 8} if trainer == "trl/grpo" else {})
    points = {"evaluate_at": (steps,), "episodes": 16, "seed": 3}
    return segment(trainer, environment, config, steps, options=BATCH | options, **points)


@pytest.mark.parametrize(
    ("trainer", "environment", "options"),
    [
        ("trl/dpo", PAIRS, {}),
        ("trl/grpo", LETTERS, {"algorithm_class": "test_trl_ranks:SameTrainer"}),
    ],
)
def test_two_processes_train_as_one_does_on_the_same_batches(trainer, environment, options):
    one, two = (run_well(small(trainer, environment, 6, **options, **more)) for more in ({}, TWO))
    points = [[*outcome.updates, *outcome.reports] for outcome in (one, two)]
    assert [point.step for point in points[1]] == [1, 2, 3, 4, 5, 6]
    for alone, joined in zip(*points, strict=True):
        assert joined.metrics == pytest.approx(alone.metrics, abs=1e-5, rel=1e-5)


def test_two_processes_continue_to_the_bit_and_draw_their_own_completions(tmp_path):
    config = Config(learning_rate=1e-3, num_generations=8)
    spec = TrainerSpec("trl/grpo", FrozenMap({**BATCH, **TWO}))
    runner = Runner(Case(spec, LETTERS, (config, config), horizon=4, episodes=16), tmp_path)
    check_halves(runner)
    saved = Path(runner.first_half().checkpoint.path)
    first, second = ((saved / f"rng_state_{rank}.pth").read_bytes() for rank in range(2))
    assert first != second


def test_a_killed_rank_is_one_lost_segment_that_is_tried_again(tmp_path):
    own = {**BATCH, **DYING, "mark": str(tmp_path / "mark"), "number": int(signal.SIGKILL)}
    study = {"trainer": {"name": "trl/dpo", "kwargs": own}, "environment": "letters-pairs"}
    study |= {"space": RATE, "fidelity": {"steps": 3, "evaluations": 1, "episodes": 16}}
    study |= {"budget": {"configurations": 1}, "seeds": {"tuning": 1, "test": 1}, "name": "s"}
    study = Study.create(load_spec(study), tmp_path / "study")
    with closing(study.store):
        result = study.run()
        lost = study.store.query("SELECT body FROM event WHERE kind = 'attempt'")
    ((body,),) = lost
    assert json.loads(body)["message"] == "rank 1 of 2 ended with signal 9 (SIGKILL)"
    assert result.counts == {"scored": 1}
    assert json.loads((tmp_path / "mark").read_text()) == []


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (int(signal.SIGSEGV), "crash", "RuntimeError: rank 1 of 2 ended with signal 11 (SIGSEGV)"),
        (0, "out_of_memory", "OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_a_segment_ends_as_the_first_of_its_ranks_did(number, kind, message, tmp_path):
    own = {**DYING, "mark": str(tmp_path / "mark"), "number": number}
    outcome = run(small("trl/dpo", PAIRS, 3, **own))
    assert (outcome.status.value, outcome.message) == (kind, message)


@pytest.mark.parametrize(("joined", "wanted"), [("2", 1), ("1", 2)])
def test_a_launcher_that_starts_another_number_is_an_error(joined, wanted, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", joined)
    one = small("trl/dpo", PAIRS, 1, processes=wanted)
    with pytest.raises(InputError, match=f"{joined} process.* run, {wanted} were asked for"):
        TRLTrainer(one.trainer).train_here(one, str(tmp_path), print)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kwargs": {"processes": 3, **BATCH}}, "a batch of 16 cannot be divided among 3"),
        ({"kwargs": {"processes": 0}}, "trainer.kwargs.processes"),
        ({"kwargs": {"fsdp": True}, "gpu": 2}, "fsdp shards the policy, which a segment evaluates"),
        ({"kwargs": {"deepspeed": "zero2.json", **TWO}}, "deepspeed is for several GPUs: give"),
        ({"kwargs": {"deepspeed": "zero2.json"}, "gpu": 2}, "DeepSpeed is not installed"),
        ({"space": {**RATE, "processes": {"choices": [1, 2]}}}, "is an option of the trainer"),
        ({"trainer": {"name": "trl/raft", "kwargs": TWO}}, "what it trains on in one process"),
        ({"kwargs": TWO, "gpu": 4}, "each process has a GPU of its own: expected 4"),
    ],
)
def test_what_cannot_be_divided_is_refused(section, message):
    gpu = section.pop("gpu", 0)
    study = {"trainer": {"name": "trl/dpo", "kwargs": section.pop("kwargs", {})}}
    study |= {"environment": "letters-pairs", "space": RATE, "resources": {"gpu": gpu}}
    study |= {"fidelity": {"steps": 8}, "budget": {"runs": 3}, **section}
    assert message in str(refusal(study))


def test_each_gpu_of_a_segment_has_a_process_and_the_dry_run_says_so():
    info = registry.info("trl/dpo")
    placed = [info.placed(TrainerSpec("trl/dpo"), Resources(gpu=gpu)).kwargs for gpu in (0.5, 2.0)]
    assert placed == [FrozenMap(device="cuda"), FrozenMap(device="cuda", processes=2)]
    said = load(TrainerSpec("trl/dpo", placed[1])).sizes(PAIRS, 16, ["beta"])
    assert said["a segment"] == "2 processes, among which a batch is divided"


def test_a_batch_is_divided_where_processes_are_joined():
    settings = Settings(find("dpo"), {**BATCH, **TWO}, {})
    for joined, batch in ((True, 8), (False, 16)):
        arguments = settings.arguments(0, 1, "unused", 2, cuda=False, joined=joined)
        assert arguments.per_device_train_batch_size == batch
