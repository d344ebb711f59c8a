"""The task `sort-verifiable`: its verifier by hand, its problems, and what its probe says of policies."""

import pytest

from autorl.core.types import InputError
from autorl.trainers.language.tasks.sorting import SORT, WORDS, exact, position, problems, reward


@pytest.mark.parametrize(
    ("completion", "right", "share"),
    [
        ("1 1 2 3", 1.0, 1.0),
        ("1 2 1 3", 0.0, 0.5),
        ("1 1 2", 0.0, 0.75),
        ("1 1 2 3 3", 0.0, 1.0),
        ("", 0.0, 0.0),
        ("1 1 2 3 >", 0.0, 1.0),
    ],
)
def test_the_verifier_by_hand(completion, right, share):
    assert exact(["3 1 2 1 >"], [completion]) == [right]
    assert position(["3 1 2 1 >"], [completion]) == [share]
    assert reward(0.5, ["3 1 2 1 >"], [completion]) == [right + 0.5 * share]


def test_problems_are_distinct_and_a_function_of_the_instance():
    assert problems(0, 6, 500) == problems(0, 6, 500)
    assert problems(0, 6, 500) != problems(1, 6, 500)
    assert len(set(problems(0, 6, 500))) == 500
    assert len(problems(0, 2, 500)) == 100, "there are no more than that"


@pytest.mark.parametrize(
    "options",
    [{"digits": 1}, {"digits": True}, {"process": -1.0}, {"sft_steps": 0}, {"letters": 3}],
)
def test_wrong_options(options, tmp_path):
    with pytest.raises(InputError, match="kwargs"):
        SORT.build(0, tmp_path, **options)


@pytest.fixture(scope="module")
def easy(tmp_path_factory):
    """Two digits, learnt to the end: 100 problems."""
    torch = pytest.importorskip("torch", reason="tasks are built with torch")
    pytest.importorskip("transformers", reason='tasks need "autorl[rlhf]"')
    torch.set_num_threads(1)
    return SORT.build(0, tmp_path_factory.mktemp("tasks"), digits=2, sft_steps=150, process=0.5)


def test_a_built_task_keeps_its_problems_apart(easy):
    assert not set(easy.prompts) & set(easy.held_out)
    assert len(easy.prompts) + len(easy.held_out) == 100
    assert easy.max_completion == 5
    assert easy.signals["reward"](["2 1 >"], ["1 2"]) == [1.5]


def test_the_probe_tells_a_policy_that_sorts_from_one_that_does_not(easy):
    from autorl.trainers.language.tasks.letters import load
    from autorl.trainers.language.tasks.tiny_models import new_policy

    policy, tokenizer = load(easy.reference)
    seen = list(easy.prompts)
    good = easy.probe(policy, tokenizer, seen, 0)
    assert good["greedy"] > 0.9
    assert good["pass_at_8"] >= good["greedy"]
    bad = easy.probe(new_policy(0, len(WORDS)), tokenizer, seen, 0)
    assert bad["greedy"] < 0.2
    assert easy.probe(policy, tokenizer, seen, 0) == good


def test_greedy_answers_do_not_depend_on_the_seed(easy):
    from autorl.trainers.language.tasks.letters import load

    policy, tokenizer = load(easy.reference)
    first, second = (
        easy.probe(policy, tokenizer, easy.held_out, seed)["greedy"] for seed in (0, 1)
    )
    assert first == second


def test_the_same_instance_builds_the_same_policy_elsewhere(tmp_path):
    torch = pytest.importorskip("torch", reason="tasks are built with torch")
    pytest.importorskip("transformers", reason='tasks need "autorl[rlhf]"')
    from autorl.trainers.language.tasks.letters import load

    built = [
        SORT.build(seed, tmp_path / str(place), digits=3, sft_steps=3)
        for place, seed in enumerate((0, 0, 1))
    ]
    weights = [
        torch.cat([p.flatten() for p in load(one.reference)[0].parameters()]) for one in built
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert built[0].prompts == built[1].prompts != built[2].prompts
