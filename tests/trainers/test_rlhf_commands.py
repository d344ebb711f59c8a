"""The ready study files for training programs of others: they load, say all that is needed, and read what is printed.

verl and OpenRLHF need GPUs: their place is taken by a script that prints lines of theirs, in our own numbers. TRL's
command line is run for real, offline, on a tiny model.
"""

import re
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
import pathlib, sys
def said(name):
    return sys.argv[sys.argv.index("--" + name) + 1]
assert said("train.seed") == "5" and "--ckpt.load_enable" in sys.argv and said("ckpt.max_num") == "1"
place, batches = pathlib.Path(said("ckpt.path"), "_actor"), int(said("data.max_samples")) // 256
begun = [int(path.name[11:]) for path in place.glob("global_step*")]
steps = int(said("train.num_episodes")) * batches
for step in range(max(begun, default=0) + 1, steps + 1):
    head = "(PPOTrainer pid=9) INFO 11-03 09:15:27 ppo_trainer.py:547]"
    print(head, f"Global step {step}: {{'reward': {step / 10}, 'kl': 0.02, 'response_length': 88.0, 'return': 0.1}}")
    if step % int(said("ckpt.save_steps")) == 0:
        for old in place.glob("global_step*"):
            old.rmdir()
        (place / f"global_step{step}").mkdir(parents=True)
    if step % int(said("eval.steps")) == 0:
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


def run(spec, trainer, until, evaluate_at, config=None, *folder, **more):
    environment, config = spec.environment.resolve(), config or spec.search_space.default()
    more |= {"evaluate_at": evaluate_at, "seed": 5}
    return train(segment(trainer, environment, config, until, *folder, **more))


def continued(spec, trainer, middle, until, folder, config=None):
    """A run that is cut in the middle: both outcomes."""
    first = run(spec, trainer, middle, (middle,), config, folder / "first", horizon=until)
    more = {"parent": first.checkpoint, "start": middle, "horizon": until}
    return first, run(spec, trainer, until, (until,), config, folder / "rest", **more)


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
    assert {path.stem for path in FILES} >= {"trl-dpo", "trl-grpo", "verl-grpo", "openrlhf-ppo"}


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


def test_openrlhf_counts_batches_and_the_study_episodes(openrlhf):
    spec, trainer = openrlhf
    assert spec.evaluation_steps == (1, 2, 3, 4)
    outcome = run(spec, trainer, 4, spec.evaluation_steps)
    curve = [(1, 0.08, 0.8), (2, 0.16, 1.6), (3, 0.24, 2.4), (4, 0.32, 3.2)]
    assert shown(outcome, "held_out", "reward") == curve
    assert outcome.reports[-1].metrics.items() >= {"kl": 0.02, "length": 88.0}.items()
    scaled = {**trainer.kwargs["metrics"], "step_scale": 1 / 256}
    kwargs = FrozenMap({**trainer.kwargs, "metrics": FrozenMap(scaled)})
    wrong = replace(trainer, kwargs=kwargs)
    with pytest.raises(RuntimeError, match=r"the last record is of step 0.125 of 4.*`step_scale`"):
        run(spec, wrong, 4, spec.evaluation_steps)
    assert run(spec, wrong, 4, (4,)).reports[0].metrics["held_out"] == 0.32


def test_openrlhf_goes_on_in_the_folder_it_saves_in(openrlhf, tmp_path):
    first, rest = continued(*openrlhf, 2, 4, tmp_path)
    assert shown(first, "held_out") + shown(rest, "held_out") == [(2, 0.16), (4, 0.32)]
    saved = [list(Path(it.checkpoint.path).rglob("global_step*")) for it in (first, rest)]
    assert [[path.name for path in paths] for paths in saved] == [
        ["global_step16"],
        ["global_step32"],
    ]


_CPU = "--use_cpu True --bf16 False --gradient_checkpointing False --dataloader_pin_memory False"
_REWARD = "def of_c(completions, **rest):\n    return [text.count('c') for text in completions]\n"


@pytest.fixture
def trl(tmp_path):
    """A study of TRL's command line with a tiny model and local data, without a network."""
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
    (tmp_path / "own_reward.py").write_text(_REWARD)
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    offline["HF_DATASETS_CACHE"] = str(tmp_path / "cache")

    def made(name, *changes):
        spec, trainer = study(name, tmp_path)
        command = trainer.kwargs["command"]
        method = name.removeprefix("trl-")
        for old, new in (
            ("Qwen/Qwen2.5-0.5B-Instruct", str(model)),
            (f"trl {method}", f"{program} {method} {_CPU}"),
            *changes,
        ):
            assert old in command
            command = command.replace(old, new, 1)
        command = re.sub("trl-lib/\\S+", str(data), command)
        _, trainer = study(name, tmp_path, command=command, environment_variables=offline)
        return spec, trainer

    return made


@pytest.mark.slow
@pytest.mark.cpu_seconds(400)
def test_dpo_by_the_command_line_of_trl(trl, tmp_path):
    """It learns that c is better than x, goes on from its checkpoint, and leaves a model."""
    from transformers import AutoModelForCausalLM

    spec, trainer = trl("trl-dpo", ("--eval_steps 100", "--eval_steps 4 --max_length 32"))
    config = {**spec.search_space.default(), "learning_rate": 1e-2}
    config["per_device_train_batch_size"] = 8
    whole = run(spec, trainer, 8, (4, 8), config)
    margins = shown(whole, "pair_margin")
    assert set(whole.reports[-1].metrics) == {"pair_accuracy", "pair_margin", "eval_loss"}
    assert margins[1][1] > margins[0][1] > 0
    assert whole.reports[-1].metrics["eval_loss"] < 0.69
    first, rest = continued(spec, trainer, 4, 8, tmp_path, config)
    assert shown(first, "pair_margin") + shown(rest, "pair_margin") == margins
    assert AutoModelForCausalLM.from_pretrained(rest.checkpoint.path).num_parameters() > 0


@pytest.mark.slow
@pytest.mark.cpu_seconds(400)
def test_grpo_by_the_command_line_of_trl(trl, tmp_path):
    changes = (
        ("accuracy_reward", "own_reward.of_c"),
        ("--eval_steps 50", "--eval_steps 2"),
        ("--max_completion_length 512", "--max_completion_length 4"),
    )
    spec, trainer = trl("trl-grpo", *changes)
    whole = run(spec, trainer, 4, (2, 4))
    metrics = whole.reports[-1].metrics
    assert set(metrics) == {"accuracy", "train_reward", "length", "entropy", "tokens"}
    first, rest = continued(spec, trainer, 2, 4, tmp_path)
    counted = shown(first, "tokens", "accuracy") + shown(rest, "tokens", "accuracy")
    assert counted == shown(whole, "tokens", "accuracy")
