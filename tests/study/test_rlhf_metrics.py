"""Cautions of an RLHF study: from which measured shares on they are said, and in which words."""

from types import SimpleNamespace

import pytest
from test_rlhf_studies import STUDY

from autorl.study.results import cautions as cautions_module
from autorl.study.results.cautions import training_cautions
from autorl.study.spec import load_spec
from autorl.trainers.language.contract import DATA_NOTE


def cautions(measured=None, notes=(), spec=None, collapses=(), **changes):
    record = SimpleNamespace(
        spec=spec or load_spec(STUDY | changes),
        tables=SimpleNamespace(
            notes=lambda: list(notes),
            noted=lambda beginning: collapses,
            training_by=lambda column: {"tuning": SimpleNamespace(environment_steps=200.0)},
        ),
        mean_at_end=lambda proposal, metric: (measured or {}).get(metric),
    )
    return training_cautions(record, 4)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.899, None),
        (0.9, "in 90 % of the groups of completions all got the same reward: they taught nothing"),
        (0.99, "in 99 % of the groups of completions all got the same reward: they taught nothing"),
        (
            1.0,
            "every completion got the same reward as the others of its group: "
            "nothing could be learnt",
        ),
    ],
)
def test_groups_of_equal_rewards_are_said_from_nine_tenths_on(share, text):
    assert cautions({"reward_zero_std": share}) == ([] if text is None else [text])


@pytest.mark.parametrize(("kl", "said"), [(0.0, True), (1e-9, False), (1.0, False)])
def test_a_policy_that_has_not_moved_is_said(kl, said):
    assert cautions({"kl": kl}) == (
        ["KL to the reference policy is 0 after training: the policy has not moved"] if said else []
    )


@pytest.mark.parametrize(
    ("share", "kwargs", "said"),
    [
        (0.099, {}, []),
        (0.1, {}, ["10 % of completions were cut at max_completion (64 tokens)"]),
        (0.5, {"max_completion": 8}, ["50 % of completions were cut at max_completion (8 tokens)"]),
    ],
)
def test_completions_that_were_cut_are_said_from_one_tenth_on(monkeypatch, share, kwargs, said):
    about = SimpleNamespace(options={"max_completion": 64})
    monkeypatch.setattr(cautions_module, "task", lambda name, options: about)
    environment = {"id": STUDY["environment"], "kwargs": kwargs}
    spec = SimpleNamespace(environment=SimpleNamespace(**environment))
    assert cautions({"truncated": share}, spec=spec) == said
    assert cautions({}, spec=spec) == []


def test_another_task_has_none_of_these_cautions():
    other = {"trainer": "sb3/sac", "environment": "Pendulum-v1", "space": "sb3/sac"}
    assert cautions({"kl": 0.0, "reward_zero_std": 1.0}, [f"{DATA_NOTE}twice"], **other) == []


def test_what_collapsed_runs_cost_is_said_by_cause():
    note = "collapse: KL above 1.5 nats per token for 3 evaluations in a row"
    assert cautions(collapses=[(note, 2, 30.0)]) == [
        f"{note}: 2 runs stopped, after 15 % of the steps of all runs"
    ]
