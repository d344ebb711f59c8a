"""RLHF studies refused before they train: objectives, schedules and fixed values that cannot be."""

import dataclasses
import importlib.util
from types import SimpleNamespace

import pytest
from refusals import expect_error

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import one_thread  # noqa: F401
from segments import run_well, segment

from autorl.core.types import InputError
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.study.tuner import space_study
from autorl.trainers.trl.live_values import write
from autorl.trainers.trl.methods import _EXPERIMENTAL, _NO_TASK_HAS, STABLE, available, find
from autorl.trainers.trl.settings import Settings

RATE = {"learning_rate": {"type": "float", "lower": 1e-5, "upper": 1e-3}}
MOVING = {"sync_ref_model": True}


def study(trainer="trl/rloo", task="letters-goldproxy", space=RATE, kwargs=None, **more):
    document = {"trainer": {"name": trainer, "kwargs": kwargs or {}}, "environment": task}
    document |= {"space": space, "fidelity": {"steps": 8}, "budget": {"runs": 3}}
    spec = load_spec({**document, **more})
    check(spec, trainer_loader(spec))
    return spec


@pytest.mark.parametrize(
    ("trainer", "metric", "known"),
    [
        ("trl/dpo", "log_likelihood", "pair_accuracy"),
        ("trl/dpo", "best_of_16", "gold"),
        ("trl/reward", "gold", "best_of_16"),
        ("trl/rloo", "pair_accuracy", "gold"),
        ("trl/ppo", "greedy", "gold"),
    ],
)
def test_a_metric_the_method_does_not_report_is_refused(trainer, metric, known):
    with pytest.raises(
        InputError, match=f"objective: unknown metric '{metric}'; allowed: .*{known}"
    ):
        study(trainer, objective={"metric": metric})
    with pytest.raises(InputError, match=f"constraints: unknown metric '{metric}'"):
        study(trainer, constraints=[{"metric": metric, "min": 0}])


@pytest.mark.parametrize(
    ("trainer", "task", "metric"),
    [
        ("trl/rloo", "letters-goldproxy", "gold"),
        ("trl/dpo", "letters-pairs", "gold"),
        ("trl/reward", "letters-pairs", "best_of_16"),
        ("trl/grpo", "sort-verifiable", "exact"),
    ],
)
def test_an_objective_that_is_not_given_is_one_the_method_reports(trainer, task, metric):
    (objective,) = study(trainer, task).objective
    assert (objective.metric, objective.reduce) == (metric, "best")


def test_the_objective_of_several_rlhf_algorithms_is_the_tasks_own():
    document = {"environment": "letters-goldproxy", "fidelity": {"steps": 8}, "budget": {"runs": 3}}
    document["algorithms"] = {
        name: {"trainer": f"trl/{name}", "space": f"trl/{name}-tiny"} for name in ("rloo", "grpo")
    }
    assert load_spec(document).objective[0].metric == "gold"


LIMIT = {"reward.gold.at_least": {"type": "float", "lower": 0.1, "upper": 0.9}}
OTHERS = {"reward.signals": {"type": "categorical", "choices": ["proxy", ["other", "gold"]]}}
ENSEMBLE = {"id": "letters-goldproxy", "kwargs": {"models": 3}}


@pytest.mark.parametrize(
    ("kwargs", "space", "task", "metric", "message"),
    [
        *(({}, {}, "letters-goldproxy", name, "trains on") for name in ("loss", "reward", "proxy")),
        (
            {"reward.signals": ["gold"]},
            {},
            "letters-goldproxy",
            "win_rate",
            "'win_rate' is by 'gold', ",
        ),
        ({"reward.gold.at_least": 0.1}, {}, "letters-goldproxy", "gold", "'gold' is what"),
        ({}, LIMIT, "letters-goldproxy", "gold", "'gold' is what letters-goldproxy trains on"),
        ({}, OTHERS, "letters-goldproxy", "gold", "'gold' is what letters-goldproxy trains on"),
        ({"reward.rule": "mean"}, {}, ENSEMBLE, "proxy_1", "'proxy_1' is what"),
        ({"reward.proxy_2.at_most": 1.0}, {}, ENSEMBLE, "proxy_1", "'proxy_1' is what"),
    ],
)
def test_what_a_run_may_be_trained_on_is_no_objective(kwargs, space, task, metric, message):
    """The training reward ranks the worst first: by a signal, a limit, a win rate or a model of an ensemble.

    Options of the trainer count like what the space can make of them, in an algorithm choice too.
    """
    given = {"task": task, "kwargs": kwargs, "space": RATE | space}
    with pytest.raises(InputError, match=f"{message}.*allow_proxy_selection: true"):
        study(**given, objective={"metric": metric})
    trainer = {"trainer": {"name": "trl/rloo", "kwargs": kwargs}, "space": RATE | space}
    document = {
        "algorithms": {"rloo": trainer},
        "environment": task,
        "objective": {"metric": metric},
    }
    spec = load_spec(document | {"fidelity": {"steps": 8}, "budget": {"runs": 3}})
    expect_error(message, check, spec, trainer_loader(spec))
    if metric not in ("loss", "reward"):
        study(**given, objective={"metric": metric}, allow_proxy_selection=True)
    study(task=task, objective={"metric": "gold"})


@pytest.mark.parametrize("metric", ["kl", "tokens", "peak_memory_mb"])
def test_what_should_be_small_is_not_maximised_unasked(metric):
    with pytest.raises(InputError, match=f"less of {metric} is better: say `direction: minimize`"):
        study(objective={"metric": metric})
    study(objective={"metric": metric, "direction": "minimize"})


@pytest.mark.parametrize(
    ("trainer", "name"),
    [("kto", "beta"), ("cpo", "beta"), ("online_dpo", "beta"), ("rloo", "temperature")],
)
def test_a_schedule_that_the_trainer_cannot_follow_is_refused(trainer, name):
    scheduled = {"type": "float", "lower": 0.1, "upper": 1.0, "schedule": ["constant", "linear"]}
    with pytest.raises(InputError, match=f"trl/{trainer} cannot follow a schedule of '{name}'"):
        study(f"trl/{trainer}", space={name: scheduled})


@pytest.mark.parametrize(
    ("trainer", "kwargs", "message"),
    [
        ("rloo", {"bf16": True}, "bf16 is for a GPU"),
        ("rloo", {"num_generations": 1}, "num_generations: .* at least 2 generations per prompt"),
        ("rloo", {"beta": "large"}, "trainer.kwargs.beta: expected a number, got 'large'"),
        ("dpo", MOVING | {"lora": {"r": 2}}, "cannot move with an adapter, whose frozen base"),
        ("grpo", MOVING, "trainer.kwargs.sync_ref_model: .* with a beta of 0, which needs none"),
        ("dpo", MOVING | {"precompute_ref_log_probs": True}, "cannot move with precompute_ref_log"),
        ("dpo", {"loss_type": "robust", "label_smoothing": 0.5}, "label_smoothing: robust needs"),
        ("dpo", {"sft_weight": 0.5}, "kwargs.sft_weight: the loss 'sigmoid' does not .* but sft$"),
        (
            "dpo",
            {"loss_type": "aot", "use_weighting": True},
            "kwargs.use_weighting: the loss 'aot' does not take it, but apo_down",
        ),
        ("dpo", {"loss_type": "exo_pair"}, "label smoothing"),
        ("kto", {"per_device_train_batch_size": 1}, "trainer.kwargs.per_device_train_batch_size: "),
        ("dpo", {"max_length": 2}, "kwargs.max_length: .* leaves none .* shortest prompt has 2"),
        ("cpo", {"loss_type": "simpo", "gamma_ratio": 0.5}, "gamma_ratio: is a share of beta"),
        (
            "ppo",
            {"batch_size": 64, "num_mini_batches": 7},
            "trainer.kwargs.batch_size: 64 cannot be divided",
        ),
        ("raft", {"packing": True}, "is for data: trl/raft samples what it trains on"),
        ("raft", {"num_generations": 1}, "num_generations must be at least 2, got 1"),
        ("dpo", {"first": {"beta": 1.0}}, "first.steps"),
        ("dpo", {"first": {"steps": 2, "trainer": "sb3/ppo"}}, "a trainer of whole policies"),
        ("dpo", {"first": {"steps": 2, "beta": 1}}, "hyperparameter of trl/sft 'beta'"),
        ("ppo", {"kl_estimator": "k9"}, "trainer.kwargs.kl_estimator: expected one of k1, k2, k3"),
        ("ppo", {"kl_coef": -1.0}, "trainer.kwargs.kl_coef: expected a number of at least 0"),
        ("ppo", {"lam": 2.0}, "trainer.kwargs.lam: expected a number in 0..1"),
    ],
)
def test_a_fixed_value_that_no_run_could_train_with_is_refused(trainer, kwargs, message):
    task = "letters-pairs" if trainer in ("dpo", "kto") else "letters-goldproxy"
    expect_error(message, study, f"trl/{trainer}", task, kwargs=kwargs)


OPTIONS = {
    **{"beta": 0.2, "label_smoothing": 0.1, "sft_weight": 0.5, "ld_alpha": 0.5, "cpo_alpha": 0.5},
    **{"use_weighting": True, "f_divergence_type": "js_divergence", "discopop_tau": 0.1},
    **{"gamma_ratio": 0.3, "desirable_weight": 2.0, "undesirable_weight": 0.5, "epsilon": 0.1},
    **{"epsilon_high": 0.3, "delta": 2.0, "importance_sampling_level": "sequence", "top_p": 0.9},
    **{"temperature": 0.9, "top_k": 5, "min_p": 0.01, "repetition_penalty": 1.1},
    **{"scale_rewards": "batch", "top_entropy_quantile": 0.5, "missing_eos_penalty": 0.5},
    **{"entropy_coef": 0.01, "mask_truncated_completions": True},
}
"""A value of every hyperparameter of a loss."""
CONDITIONAL = {"sft_weight", "f_divergence_type", "use_weighting", "gamma_ratio"}
LOSSES = {
    "dpo": "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired apo_zero "
    "apo_down discopop sft sigmoid_norm rpo mpo",
    "cpo": "sigmoid hinge ipo simpo alphapo",
    "grpo": "grpo bnpo dr_grpo dapo cispo sapo luspo vespo",
    **{"kto": "kto apo_zero_unpaired", "sft": "nll dft chunked_nll", "online_dpo": "sigmoid ipo"},
}
UNUSED = {
    **{"aot": CONDITIONAL - {"gamma_ratio"}, "rpo": {"use_weighting"}, "robust": {"sft_weight"}},
    **{"sft": {"use_weighting"}, "simpo": set(), "kto": set(), "grpo": set()},
}


@pytest.mark.parametrize(
    "trainer",
    [pytest.param("dpo", marks=pytest.mark.more), *("cpo", "kto", "sft", "grpo", "online_dpo")],
)
def test_every_loss_trains_beside_every_fixed_option_of_its_family(trainer):
    method = find(trainer)
    fields = {field.name for field in dataclasses.fields(method.classes()[1])}
    fields |= {"dpo": {"sft_weight"}, "cpo": {"gamma_ratio"}}.get(trainer, set())
    options = {name: value for name, value in OPTIONS.items() if name in fields}
    options |= {"per_device_train_batch_size": 8, "guard": 0}
    options |= {"num_generations": 4} if trainer == "grpo" else {}
    task = "letters-goldproxy" if method.online else "letters-pairs"
    for loss in LOSSES[trainer].split():
        config = {"loss_type": loss}
        outcome = run_well(
            segment(f"trl/{trainer}", task, config, 1, None, options, evaluate_at=())
        )
        unused = options.keys() - outcome.applied.keys() - {"guard"}
        assert unused == UNUSED.get(loss, unused & CONDITIONAL), loss


def test_reduce_alone_is_of_the_tasks_own_metric():
    (objective,) = study("trl/grpo", objective={"reduce": "last"}).objective
    assert (objective.metric, objective.reduce) == ("gold", "last")


def test_a_fixed_value_whose_partner_is_searched_is_left_to_the_space():
    batch = {"per_device_train_batch_size": {"choices": [42, 84]}}
    study(kwargs={"num_generations": 7}, space=batch)
    simpo = {"loss_type": "simpo", "gamma_ratio": 0.5}
    study("trl/cpo", kwargs=simpo, space={"beta": RATE["learning_rate"]})


def test_a_fixed_value_that_is_searched_too_is_refused_unless_it_fills_in_where_the_space_leaves_it_out():
    with pytest.raises(InputError, match=r"\.learning_rate: is searched by the space as well"):
        study(kwargs={"learning_rate": 1e-3})
    study("trl/grpo", space="trl/grpo-tiny", kwargs={"epsilon": 0.1})


def test_simpo_is_a_space_of_cpo():
    found = space_study("trl/simpo", "letters-pairs")
    assert (found["trainer"], found["space"]) == ("trl/cpo", "trl/simpo-tiny")


def test_a_schedule_of_epsilon_moves_both_sides_of_the_clip():
    """TRL copies epsilon to the upper side when it builds its trainer, and reads it nowhere again."""
    config = {"learning_rate": 1e-3, "epsilon": 0.3, "epsilon.shape": "linear", "epsilon.end": 0.1}
    for own, upper in (({}, 0.2), ({"epsilon_high": 0.4}, 0.4)):
        live = SimpleNamespace(epsilon_low=0.3, epsilon_high=own.get("epsilon_high", 0.3))
        live.lr_scheduler = SimpleNamespace(base_lrs=[])
        live.optimizer = SimpleNamespace(param_groups=[])
        write(Settings(find("grpo"), {}, {**config, **own}), live, 5, 10, first=False)
        assert (live.epsilon_low, live.epsilon_high) == pytest.approx((0.2, upper))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *(("rlooo", "did you mean 'rloo'"), ("ppoo", "'ppo'"), ("zzz", "allowed: rloo")),
        ("xpo", "did you mean"),
    ],
)
def test_a_method_trl_does_not_have_is_said_before_its_data_is_asked_for(name, hint):
    with pytest.raises(
        InputError, match=f"trainer: TRL .* has no trainer for '{name}'; .*{hint}"
    ) as error:
        study(f"trl/{name}")
    assert error.value.key == "trainer"


def test_the_data_of_a_method_trl_has_and_we_do_not_know_is_asked_for():
    names = (*STABLE, *_EXPERIMENTAL, *_NO_TASK_HAS)
    unknown = next(name for name in available() if name not in names)
    expect_error(f"trl/{unknown} is trained on is not known: say it with", find, unknown)
    assert {*_EXPERIMENTAL, *_NO_TASK_HAS} <= {*available()}
    for name, what in (("gkd", "a teacher model"), ("tpo", "a reference"), ("async_grpo", "vLLM")):
        with pytest.raises(InputError, match=f"trl/{name} needs .*{what}.*trainer `command`"):
            study(f"trl/{name}", kwargs={"data": "pairs"})


@pytest.mark.parametrize(
    ("trainer", "name", "value", "message", "good"),
    [
        ("GRPO", "loss_type", "gspo", "has no 'gspo': .*; did you mean .*'grpo'", "grpo"),
        ("GRPO", "scale_rewards", "groups", "has no 'groups': .* 'group'", "none"),
        ("GRPO", "importance_sampling_level", "word", "has no 'word'", "token"),
        ("SFT", "loss_type", "nlll", "has no 'nlll': .*'nll'", "dft"),
        ("GRPO", "loss_type", ["gspo", "dapo"], r"has no \['gspo', 'd", "grpo"),
        ("KTO", "loss_type", "sigmoid", "has no 'sigmoid'", "kto"),
        ("OnlineDPO", "loss_type", "hinge", "has no 'hinge'", "ipo"),
        ("rloo", "num_generations", 7, "trl/rloo: .*_size .8. must be divisible by .* .7.", 4),
        (
            *("rloo", "lr_scheduler_type", "zigzag"),
            *("trl/rloo: zigzag is not a valid SchedulerType", "constant"),
        ),
        ("DPO", "loss_type", "nonsense", "has no 'nonsense'", "ipo"),
    ],
)
def test_a_value_trl_refuses_is_named_before_a_study_whether_fixed_or_a_choice(
    trainer, name, value, message, good
):
    of_class = "" if trainer.islower() else f"TRL's {trainer}Trainer "
    trainer = {"OnlineDPO": "online_dpo"}.get(trainer, trainer.lower())
    message = f"{name}: {of_class}{message}"
    batch = {"per_device_train_batch_size": 8} if trainer == "rloo" else {}
    with pytest.raises(InputError, match=f"trainer.kwargs.{message}"):
        study(f"trl/{trainer}", kwargs={name: value, **batch}, space=RATE)
    space = RATE | {part: {"value": size} for part, size in batch.items()}
    with pytest.raises(InputError, match=f"^(?:.*: )?{message}"):
        study(f"trl/{trainer}", space={**space, name: {"choices": [good, value]}})


GRPO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")


@pytest.mark.parametrize(
    ("trainer", "kwargs"),
    [
        *(("grpo", {"scale_rewards": value}) for value in (False, True)),
        ("grpo", {"generation_kwargs": {"no_repeat_ngram_size": 2}}),
        ("dpo", {"padding_free": True}),
        ("sft", {"loss_type": "chunked_nll"}),
        ("cpo", {"loss_type": "alphapo"}),
        *(("grpo", {"loss_type": name}) for name in GRPO_LOSSES),
    ],
)
def test_values_trl_takes_are_taken(trainer, kwargs):
    study(f"trl/{trainer}", kwargs=kwargs)


def test_a_choice_that_is_only_wrong_beside_others_is_judged_beside_those_of_its_configuration():
    """32 completions go in groups of 2, 4 or 8; a group of 3 only where the batch is 24."""
    batch, groups = {"choices": [32, 24]}, {"choices": [2, 4, 8, 3]}
    space = {**RATE, "per_device_train_batch_size": batch, "num_generations": groups}
    expect_error(r"num_generations: .* \(32\) must be divisible .* \(3\)", study, space=space)
    rules = {"constraints": ["per_device_train_batch_size % num_generations == 0"]}
    study(space={"hyperparameters": space, **rules})


def test_adapters_have_no_mean():
    space = {"learning_rate": RATE["learning_rate"] | {"changeable": True}}
    averaging = {"optimizer": {"name": "pbt", "exploit": "slerp"}, "budget": {"runs": 12}}
    with pytest.raises(InputError, match=r"lora\.r: a mean of .* expected copy$") as error:
        study("trl/rloo", space=space, kwargs={"lora": {"r": 2}}, **averaging)
    assert error.value.key == "optimizer.exploit"


@pytest.mark.parametrize("name", ["fsdp", "fsdp_config", "parallelism_config"])
def test_what_shards_the_policy_is_refused_in_one_line(name):
    with pytest.raises(InputError, match="shards the policy, which a segment evaluates") as error:
        study(kwargs={name: "full_shard"})
    assert error.value.key == f"trainer.kwargs.{name}"


def test_vllm_that_is_not_installed_is_said(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "vllm" else find(name, *more),
    )
    with pytest.raises(InputError, match=r"trainer\.kwargs\.use_vllm: vLLM is not installed"):
        study(kwargs={"use_vllm": True})
