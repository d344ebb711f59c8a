"""Studies of RLHF tasks: what is selected by, what is refused, and what the result says of a proxy."""

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from study_support import StoppedError, resume, stop_after

from autorl.cli.export import write_model
from autorl.core.seeds import SeedPlan
from autorl.core.types import InputError
from autorl.report.plan import cautions_before
from autorl.report.reading import open_view
from autorl.study import Study
from autorl.study.results.cautions import proxy_caution, reward_metrics
from autorl.study.spec import load_spec
from autorl.study.tuner import space_study, tune

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/rlhf"
STUDY = {
    "trainer": "trl/rloo",
    "environment": "letters-goldproxy",
    "space": "trl/rloo-tiny",
    "fidelity": {"steps": 10},
    "budget": {"runs": 3},
}


def test_a_study_selects_by_the_held_out_score_at_the_best_step_unless_told_otherwise():
    (objective,) = load_spec(STUDY).objective
    assert (objective.metric, objective.reduce, objective.direction) == ("gold", "best", "maximize")
    (objective,) = load_spec(
        STUDY | {"objective": {"metric": "kl", "direction": "minimize"}}
    ).objective
    assert (objective.metric, objective.reduce) == ("kl", "last")


def test_a_space_alone_is_a_short_study_on_the_models_of_the_task():
    study = space_study("trl/rloo", "letters-goldproxy")
    assert study["space"] == "trl/rloo-tiny"
    assert study["trainer"] == "trl/rloo"
    assert load_spec(study).fidelity.steps == 60
    assert space_study("trl/rloo", "my-task")["space"] == "trl/rloo"
    assert space_study("trl/dpo-tiny", "letters-goldproxy")["trainer"] == "trl/dpo"
    assert space_study("population/ppo", "CartPole-v1")["fidelity"]["steps"] == 100_000


def test_selecting_by_the_training_signal_is_refused_unless_it_is_said():
    pytest.importorskip("trl", reason="needs the extra rlhf")
    from autorl.study.setup import check, trainer_loader

    by_proxy = STUDY | {"objective": {"metric": "proxy"}}
    spec = load_spec(by_proxy)
    with pytest.raises(InputError, match="allow_proxy_selection: true"):
        check(spec, trainer_loader(spec))
    spec = load_spec(by_proxy | {"allow_proxy_selection": True})
    check(spec, trainer_loader(spec))


def test_metrics_that_were_not_selected_by_are_those_of_the_task():
    means = {"gold": 0.4, "reference_gold": 0.1, "kl": 1.0, "loss": 3.0}

    def metrics(**changes):
        spec = load_spec(STUDY | changes)
        mean = lambda proposal, name: means.get(name)  # noqa: E731
        return reward_metrics(SimpleNamespace(spec=spec, mean_of_tests=mean), 4)

    by_proxy = metrics(objective={"metric": "proxy", "reduce": "best"})
    assert by_proxy == {"gold": 0.4, "reference_gold": 0.1, "kl": 1.0}
    assert metrics() == {"reference_gold": 0.1, "kl": 1.0}
    assert metrics(trainer="sb3/sac", environment="Pendulum-v1", space="sb3/sac") == {}


def test_the_result_says_when_a_proxy_led_below_the_reference_policy():
    proxy = {"objective": {"metric": "proxy"}, "allow_proxy_selection": True}
    spec = load_spec(STUDY | proxy)
    worse = proxy_caution(spec, {"gold": -2.5, "reference_gold": 0.1})
    assert "selected by 'proxy'" in worse
    assert "gold is -2.5, worse than the 0.1 of the reference policy" in worse
    assert "better than the 0.1" in proxy_caution(spec, {"gold": 0.5, "reference_gold": 0.1})
    assert proxy_caution(load_spec(STUDY | {"allow_proxy_selection": True}), {"proxy": 1.0}) is None
    assert proxy_caution(load_spec(STUDY), {}) is None


def test_the_result_says_so_of_every_signal_that_may_have_been_trained_on():
    allowed = STUDY | {"allow_proxy_selection": True, "objective": {"metric": "proxy_1"}}
    ensemble = allowed | {"environment": {"id": "letters-goldproxy", "kwargs": {"models": 3}}}
    text = proxy_caution(load_spec(ensemble), {"gold": -1.0, "reference_gold": 0.1})
    assert text.startswith(
        "selected by 'proxy_1', which it can be trained on: on test seeds its gold is -1, worse"
    )
    rate = {"type": "float", "lower": 1e-4, "upper": 1e-2}
    signals = {"type": "categorical", "choices": ["proxy", "gold"]}
    by_gold = allowed | {
        "objective": {"metric": "gold"},
        "space": {"learning_rate": rate, "reward.signals": signals},
    }
    caution = proxy_caution(load_spec(by_gold), {"gold": 1.0})
    assert caution == "selected by 'gold', which it can be trained on"


SHORT = {
    "runs": 2,
    "steps": 20,
    "seeds": SeedPlan([0], [100, 101]),
    "optimizer": "random",
    "executor__name": "in_process",
    "executor__workers": 1,
    "fidelity__evaluations": 4,
    "fidelity__episodes": 128,
    "test__top": 1,
    "trainer": {"name": "trl/rloo", "kwargs": {"guard": 0}},
}
GENTLE = {
    "learning_rate": 1e-3,
    "beta": 0.6,
    "num_generations": 4,
    "per_device_train_batch_size": 64,
    "temperature": 1.0,
    "num_iterations": 1,
    "normalize_advantages": False,
}


@pytest.mark.slow
@pytest.mark.cpu_seconds(900)
def test_selecting_by_gold_finds_a_better_policy_and_selecting_by_proxy_a_worse_one_than_the_reference():
    """The default and a gentle configuration, 20 steps each; the reference policy has gold 0.1."""
    pytest.importorskip("trl", reason="needs the extra rlhf")
    by_gold = tune("trl/rloo", env="letters-goldproxy", warm_start=[GENTLE], **SHORT)
    assert by_gold.test.value > 0.45
    assert by_gold.beside["reference_gold"] < 0.25
    assert by_gold.beside["kl"] < 10
    hard = GENTLE | {"learning_rate": 5e-3, "beta": 0.02}
    proxy = {"metric": "proxy", "reduce": "best"}
    options = SHORT | {
        "objective": proxy,
        "allow_proxy_selection": True,
        "warm_start": [GENTLE | {"beta": 2.0}, hard],
    }
    by_proxy = tune("trl/rloo", env="letters-goldproxy", **(options | {"runs": 3}))
    assert by_proxy.incumbent.config["beta"] < 0.1
    assert by_proxy.beside["gold"] < by_proxy.beside["reference_gold"]
    assert "worse than the" in by_proxy.caveats[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"optimizer": "asha"}, True),
        ({"optimizer": {"name": "tpe", "stop": "median"}}, True),
        ({"optimizer": "tpe"}, False),
        ({"optimizer": {"name": "tpe", "stop": "overoptimizing"}}, False),
        ({"optimizer": "asha", "objective": {"metric": "gold", "reduce": "best"}}, False),
        ({"optimizer": "asha", "objective": {"metric": "kl", "direction": "minimize"}}, False),
        (
            {
                "optimizer": "asha",
                "environment": "sort-verifiable",
                "objective": {"metric": "exact", "reduce": "last"},
            },
            False,
        ),
    ],
)
def test_early_cuts_by_the_last_gold_are_cautioned(changes, said):
    pytest.importorskip("trl", reason="needs the extra rlhf")
    spec = load_spec(STUDY | {"objective": {"metric": "gold", "reduce": "last"}} | changes)
    texts = [text for text in cautions_before(spec) if "over-optimised" in text]
    assert len(texts) == said
    assert all("by their last gold at steps" in text for text in texts)


_VERL = """
import json, os, sys
arguments = dict(word.split("=", 1) for word in sys.argv[1:])
rate, seed = float(arguments["actor_rollout_ref.actor.optim.lr"]), arguments["data.seed"]
until, begin, total = int(arguments["trainer.total_training_steps"]), 0, 0.0
if arguments.get("trainer.resume_mode") == "resume_path":
    path = arguments["trainer.resume_from_path"]
    begin, total = int(path.rsplit("_", 1)[1]), json.load(open(path + "/actor.json"))
for step in range(begin + 1, until + 1):
    total += rate
    with open(os.environ["TRAINED"], "a") as trained:
        print(rate, seed, step, file=trained)
    line = f"step:{step} - critic/score/mean:0.1 - actor/kl_loss:0.001 - response_length/mean:200.5 - perf/total_num_tokens:9"
    if step % 20 == 0:
        line += f" - val-core/openai/gsm8k/reward/mean@1:np.float64({total})"
    print("\\x1b[36m(TaskRunner pid=77)\\x1b[0m " + line)
    if step % int(arguments["trainer.save_freq"]) == 0 and arguments["trainer.default_local_dir"]:
        folder = arguments["trainer.default_local_dir"] + f"/global_step_{step}"
        os.makedirs(folder)
        json.dump(total, open(folder + "/actor.json", "w"))
"""


@pytest.fixture
def verl(tmp_path, monkeypatch):
    """The study file of verl, cut short, on a program that prints, saves and resumes as verl does."""
    monkeypatch.setenv("TRAINED", str(tmp_path / "trained"))
    (tmp_path / "verl.py").write_text(_VERL)
    text = (EXAMPLES / "verl-grpo.yaml").read_text()
    for old, new in (
        ("-m verl.trainer.main_ppo", "verl.py"),
        ("{name: tpe, stop: median}", "{name: random, stop: median, rungs: 3}"),
        ("{runs: 16}", "{runs: 5}"),
        ("{tuning: 1, test: 2}", "{tuning: 1, test: 1}"),
        ("{name: processes, workers: 1}", "{name: in_process}"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "verl.yaml").write_text(text)
    return load_spec(tmp_path / "verl.yaml")


@pytest.mark.more
def test_a_command_with_flags_of_its_own_is_resumed_at_rungs_and_exported(verl, tmp_path):
    study = Study.create(verl, tmp_path / "study")
    stop_after(study, 15)
    with pytest.raises(StoppedError):
        study.run()
    study.close()
    resume(tmp_path / "study")
    trained = (tmp_path / "trained").read_text().splitlines()
    assert len(trained) == len(set(trained)), "a step was trained twice"
    with closing(Study.open(tmp_path / "study")) as study:
        rows = study.tables.segments()
        assert any(row.parent is not None for row in rows), "no run went on"
        assert all(row.from_step or row.parent is None for row in rows)
        ends = {row.to_step for row in rows}
        assert ends > {200}
        rate = study.result().incumbent.config["learning_rate"]
    with closing(open_view(tmp_path / "study")) as view:
        assert "for the program that saved it" in write_model(view, tmp_path / "model", None, None)
    saved = json.loads((tmp_path / "model" / "global_step_200" / "actor.json").read_text())
    assert saved == pytest.approx(200 * rate)
    with (
        pytest.raises(InputError, match="replaces nothing"),
        closing(open_view(tmp_path / "study")) as view,
    ):
        write_model(view, tmp_path / "model", None, None, replace=True)
