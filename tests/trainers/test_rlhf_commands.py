"""The ready study files for training programs of others: they load, say all that is needed, and read what is printed.

verl and OpenRLHF need GPUs: their place is taken by a script that prints lines of theirs, in our own numbers. TRL's
command line is run for real, offline, on a tiny model.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from segments import segment, train

from autorl.core.types import FrozenMap, Status
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.trainers import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/rlhf"
OURS = sorted(EXAMPLES.glob("letters-*.yaml"))  # trained by this package
FILES = sorted({*EXAMPLES.glob("*.yaml")} - {*OURS})

_VERL = """
import sys
arguments = dict(word.split("=", 1) for word in sys.argv[1:])
assert float(arguments["actor_rollout_ref.actor.optim.lr"]) == 1e-6 and arguments["data.seed"] == "5"
for step in range(1, int(arguments["trainer.total_training_steps"]) + 1):
    line = f"step:{step} - critic/score/mean:{step / 100} - actor/kl_loss:0.001 - response_length/mean:200.5"
    line += f" - perf/total_num_tokens:{1000 * step}"
    if step % 20 == 0:
        line += f" - val-core/openai/gsm8k/reward/mean@1:np.float64({step / 1000})"
    print("\\x1b[36m(TaskRunner pid=77)\\x1b[0m " + line)
"""
_OPENRLHF = """
import sys
assert sys.argv[sys.argv.index("--train.seed") + 1] == "5"
steps = int(sys.argv[sys.argv.index("--data.max_samples") + 1]) // 256
for step in range(1, steps + 1):
    head = "(PPOTrainer pid=9) INFO 11-03 09:15:27 ppo_trainer.py:547]"
    print(head, f"Global step {step}: {{'reward': {step / 10}, 'kl': 0.02, 'response_length': 88.0, 'return': 0.1}}")
    if step % 4 == 0:
        accuracy = {"eval_default_pass1": step / 100}
        print(head, f"Evaluation completed in 9s, global_step {step}, eval_metrics: {accuracy}")
"""


def study(name, path, **kwargs):
    """The study file `name`, its programs looked for in `path`, options of the trainer replaced."""
    spec = load_spec(EXAMPLES / f"{name}.yaml")
    trainer = spec.trainer.resolve()
    options = FrozenMap({**trainer.kwargs, "path": str(path), **kwargs})
    return spec, replace(trainer, kwargs=options)


def faked(name, folder, code, module):
    """A study whose program prints the lines of another one."""
    (folder / "fake.py").write_text(code)
    spec, trainer = study(name, folder)
    command = trainer.kwargs["command"].replace(f"-m {module}", "fake.py")
    return spec, replace(trainer, kwargs=FrozenMap({**trainer.kwargs, "command": command}))


def shown(outcome, *names):
    assert outcome.status == Status.DONE
    reports = outcome.reports
    return [(report.step, *(report.metrics[name] for name in names)) for report in reports]


def run(spec, trainer, until, evaluate_at, config=None):
    environment, config = spec.environment.resolve(), config or spec.search_space.default()
    return train(segment(trainer, environment, config, until, evaluate_at=evaluate_at, seed=5))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_file_loads_and_its_command_is_complete(path):
    spec = load_spec(path)
    trainer = load(spec.trainer.resolve())
    space = spec.search_space
    trainer.check(spec.environment.resolve(), space.names)
    of_training = ("loss", "reward", "critic/score/mean")
    assert trainer.metrics.map[spec.objectives()[0].metric] not in of_training
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_study_file_of_our_own_trainers_is_accepted(path):
    pytest.importorskip("trl", reason="the extra `rlhf` is not installed")
    # It checks the space, the objective, the optimizer and its options.
    study = Study.in_memory(load_spec(path))
    assert study.spec.objectives()[0].metric == "gold"
    study.close()


def test_there_is_a_study_file_for_each_of_them():
    assert {path.stem for path in FILES} >= {"trl-dpo", "verl-grpo", "openrlhf-ppo"}


def test_verl_gives_a_curve_of_its_validation_accuracy(tmp_path):
    spec, trainer = faked("verl-grpo", tmp_path, _VERL, "verl.trainer.main_ppo")
    outcome = run(spec, trainer, 60, (20, 40, 60))
    curve = [(20, 0.02, 0.2), (40, 0.04, 0.4), (60, 0.06, 0.6)]
    assert shown(outcome, "accuracy", "train_score") == curve
    assert outcome.reports[0].metrics["length"] == 200.5
    assert outcome.cost["tokens"] == 1000 * sum(range(61))


@pytest.fixture
def openrlhf(tmp_path):
    return faked("openrlhf-ppo", tmp_path, _OPENRLHF, "openrlhf.cli.train_ppo_ray")


def test_openrlhf_gives_what_it_evaluated_last(openrlhf):
    outcome = run(*openrlhf, 2048, (2048,))
    last = (2048, 0.08, 0.8, 0.02, 88.0)
    assert shown(outcome, "held_out", "reward", "kl", "length") == [last]


def test_openrlhf_counts_batches_and_the_study_prompts(openrlhf):
    spec, trainer = openrlhf
    assert spec.evaluation_steps == (2048, 4096, 6144, 8192)
    outcome = run(spec, trainer, 8192, spec.evaluation_steps)
    curve = [(2048, 0.08, 0.8), (4096, 0.16, 1.6), (6144, 0.24, 2.4), (8192, 0.32, 3.2)]
    assert shown(outcome, "held_out", "reward") == curve
    unscaled = {**trainer.kwargs["metrics"]}
    del unscaled["step_scale"]
    kwargs = FrozenMap({**trainer.kwargs, "metrics": FrozenMap(unscaled)})
    wrong = replace(trainer, kwargs=kwargs)
    with pytest.raises(RuntimeError, match=r"the last record is of step 32 of 8192.*`step_scale`"):
        run(spec, wrong, 8192, spec.evaluation_steps)
    assert run(spec, wrong, 8192, (8192,)).reports[0].metrics["held_out"] == 0.32


_CPU = "--use_cpu True --bf16 False --gradient_checkpointing False --dataloader_pin_memory False --max_length 32"


@pytest.mark.slow
@pytest.mark.cpu_seconds(400)
def test_the_command_line_of_trl_for_real(tmp_path):
    """`trl dpo` from local folders without a network; another learning rate gives another result."""
    pytest.importorskip("trl", reason='needs "autorl[rlhf]"')
    from rlhf_support import LETTERS, save, write_policy

    program = shutil.which("trl") or str(Path(sys.executable).with_name("trl"))
    model, data = tmp_path / "model", tmp_path / "data"
    write_policy(model)
    data.mkdir()
    rows = [
        {"prompt": "a b", "chosen": f" c {letter}", "rejected": f" x {letter}"}
        for letter in LETTERS * 4
    ]
    for split in ("train", "test"):
        save(data / f"{split}.jsonl", rows)
    spec, trainer = study("trl-dpo", tmp_path)
    command = trainer.kwargs["command"].replace("Qwen/Qwen2.5-0.5B-Instruct", str(model))
    command = command.replace("trl-lib/ultrafeedback_binarized", str(data)).replace(
        "trl dpo", f"{program} dpo {_CPU}", 1
    )
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    offline["HF_DATASETS_CACHE"] = str(tmp_path / "cache")
    _, trainer = study("trl-dpo", tmp_path, command=command, environment_variables=offline)
    config = {**spec.search_space.default(), "learning_rate": 1e-2}
    config["per_device_train_batch_size"] = 8
    outcome = run(spec, trainer, 8, (4, 8), config)
    assert outcome.status == Status.DONE
    assert [report.step for report in outcome.reports] == [4, 8]
    first, last = (report.metrics for report in outcome.reports)
    assert set(last) == {"pair_accuracy", "pair_margin", "eval_loss"}
    assert last["pair_margin"] > first["pair_margin"] > 0, "it learns that c is better than x"
    assert last["eval_loss"] < 0.69
