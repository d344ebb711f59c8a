"""The task `files`: models, data and rewards of one's own; what is split how, and what is refused before a study."""

import shutil

import pytest
from rlhf_support import importable, save, write_policy

pytest.importorskip("transformers", reason="needs the extra rlhf")

from autorl.core.seeds import evaluation_seeds
from autorl.core.types import EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.trainers import load
from autorl.trainers.language.models import load_policy, load_tokenizer, model_folder
from autorl.trainers.language.policy_metrics import evaluation_prompts, measure
from autorl.trainers.language.sampling import _encode, _padded, sample
from autorl.trainers.language.tasks import build, task
from autorl.trainers.language.tasks.files import pinned
from autorl.trainers.language.tasks.letters import LETTERS
from autorl.trainers.language.tasks.tiny_models import write_tokenizer

CODE = """
def vowels(prompts, completions):
    return [float(sum(word in "aeiou" for word in text.split())) for text in completions]

def answered(prompts, completions, answer):
    return [float(wanted in text.split()) for text, wanted in zip(completions, answer)]
"""
PROMPTS = [f"{one} {other}" for one in LETTERS[:6] for other in LETTERS[:5]]
NAMES = {"training": "vowels", "selection": "answered", "report": "answered"}
MODULE = "own_letter_rewards"
SIGNALS = {name: f"{MODULE}:{name}" for name in ("vowels", "answered")}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A policy, a reward model, and a policy whose tokenizer begins every text and has no padding."""
    from tokenizers import processors
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("models")
    write_policy(folder / "policy")
    head = AutoModelForSequenceClassification.from_pretrained(folder / "policy", num_labels=1)
    head.save_pretrained(folder / "judge")
    write_tokenizer(folder / "judge", LETTERS)
    shutil.copytree(folder / "policy", folder / "begins")
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", 1)]
    )
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder / "begins")
    return folder


@pytest.fixture(autouse=True)
def _rewards(tmp_path, monkeypatch):
    with importable(MODULE, CODE, tmp_path, monkeypatch):
        yield


@pytest.fixture
def given(models, tmp_path):
    """Options of a study on 30 prompts."""
    rows = [{"question": prompt, "answer": prompt.split()[0]} for prompt in PROMPTS]
    return {
        "model": str(models / "policy"),
        "data": save(tmp_path / "prompts.jsonl", rows),
        "columns": {"prompt": "question"},
        "max_completion": 4,
        "signals": SIGNALS,
        **NAMES,
    }


def test_prompts_rewards_and_names_are_the_users(given, models):
    built = build("files", given | {"signals": SIGNALS | {"judge": str(models / "judge")}})
    assert (built.training, built.selection, built.report) == ("vowels", "answered", "answered")
    assert built.reference == models / "policy"
    assert set(built.prompts) | set(built.held_out) == set(PROMPTS)
    assert not set(built.prompts) & set(built.held_out)
    assert len(built.held_out) == 6
    batch = (["b a", "c a"], ["b e", "a u i"])
    assert built.signals["vowels"](*batch) == [1.0, 3.0]
    assert built.signals["answered"](*batch) == [1.0, 0.0]
    first, second = built.signals["judge"](*batch)
    assert first != second
    policy, tokenizer = load_policy(built.reference), load_tokenizer(built.reference)
    found = measure(policy, policy, tokenizer, built, seed=0, role="test", step=1, n=8)
    assert {"vowels", "answered", "judge", "reference_answered", "win_rate", "kl"} <= set(found)
    assert found["kl"] == 0.0


def test_a_tokenizer_that_begins_texts_and_does_not_pad(models):
    """Sampled, scored and training texts begin alike; padding is the end of sequence, and masked."""
    tokenizer = load_tokenizer(models / "begins")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 2
    tokens, attention, mask = _padded(_encode(tokenizer, [("a b", "c"), ("a", "b")]), 2, "cpu")
    assert tokens[0].tolist() == [1, 4, 5, 6, 2]
    assert tokens[1].tolist() == [1, 4, 5, 2, 2]
    assert attention[1].tolist() == [1, 1, 1, 1, 0]
    assert mask[1].tolist() == [0, 0, 1, 1, 0]
    assert _encode(load_tokenizer(models / "policy"), [("a b", "c")]) == [(2, [4, 5, 6, 2])]


def test_columns_that_nothing_reads_are_named(given, tmp_path):
    """Rewards read `answer`; one that takes whatever there is reads all."""
    rows = [{"question": text, "answer": "a", "images": [], "level": 3} for text in PROMPTS]
    options = given | {"data": save(tmp_path / "more.jsonl", rows)}
    assert build("files", options).notes == ("data: nothing reads the columns images, level",)
    (tmp_path / "takes_all.py").write_text(
        "def reward(completions, **rest):\n    return rest['level']\n"
    )
    options["signals"] = SIGNALS | {"all": "takes_all:reward"}
    assert build("files", options).notes == ()


def test_a_checked_answer_has_its_greedy_and_sampled_accuracy(given):
    """Each by brute force over what the policy writes."""
    options = given | {"checked": "answered", "pass_at": 3, "selection": "greedy"}
    assert task("files", options).probed == ("greedy", "pass_at_3")
    built = build("files", options)
    policy, tokenizer = load_policy(built.reference), load_tokenizer(built.reference)
    found = measure(policy, policy, tokenizer, built, seed=0, role="test", step=1, n=8)
    asked = evaluation_prompts(built.held_out, 0, "test", 1, 8, {})
    likeliest = sample(policy, tokenizer, asked, 4, 0, temperature=0.0).texts
    right = built.signals["answered"](asked, likeliest)
    assert found["greedy"] == sum(right) / 8
    (seed,) = evaluation_seeds(0, "test", 1, 2)[:1]
    tried = sample(policy, tokenizer, [one for one in asked for _ in range(3)], 4, seed).texts
    groups = [tried[first : first + 3] for first in range(0, 24, 3)]
    hits = [
        max(built.signals["answered"]([one] * 3, group))
        for one, group in zip(asked, groups, strict=True)
    ]
    assert found["pass_at_3"] == sum(hits) / 8


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"model": "nobody/has-this"}, "model", "nothing is downloaded unless HF_HUB_OFFLINE=0"),
        ({"model": "not a name"}, "model", "nothing of that name"),
        ({"model": "."}, "model", "no config.json"),
        ({"data": None}, "data", "expected a folder"),
        ({"data": "nobody/has-this"}, "data", "nothing is downloaded unless HF_HUB_OFFLINE=0"),
        ({"columns": {}}, "data", "its columns are question, answer"),
        ({"held_out": 2}, "held_out", "expected a share"),
        ({"held_out": 0.01}, "held_out", "at least two"),
        ({"max_completion": 0}, "max_completion", "at least 1"),
        ({"signals": {"kl": f"{MODULE}:vowels"}}, "signals", "give the signal another name"),
        ({"signals": {"vowels": f"{MODULE}:vowels"}}, "selection", "unknown metric 'answered'"),
        ({"signals": SIGNALS | {"vowels": f"{MODULE}:b"}}, "signals.vowels", "cannot import"),
        ({"signals": SIGNALS | {"vowels": "nobody/has"}}, "signals.vowels", "folder of a model"),
        ({"training": None}, "training", "none of its own"),
        ({"training": "reward"}, "training", "allowed: vowels, answered, data"),
        ({"report": "loss"}, "report", "unknown metric 'loss'"),
        ({"selection": "win_rate", "report": "kl"}, "selection", "name one of the two"),
        ({"prompts": 3}, "prompts", "expected a text"),
        ({"checked": "gold"}, "checked", "unknown 'gold'; allowed: vowels, answered"),
        ({"pass_at": 0}, "pass_at", "at least 1"),
        ({"near_duplicates": "no"}, "near_duplicates", "unknown 'no'; allowed: note, drop"),
        ({"modle": "x"}, "kwargs", "files has no option 'modle'"),
    ],
)
def test_what_cannot_be_is_said_before_a_study(changes, key, message, given):
    options = given | changes
    with pytest.raises(InputError, match=message) as error:
        task("files", options).check(options)
    assert error.value.key.endswith(key)
    assert "\n" not in str(error.value)


@pytest.fixture
def grouped(given, tmp_path):
    """The same options, and two prompts in three are of the group `most`."""
    rows = [
        {"question": prompt, "answer": "a", "topic": "most" if number % 3 else "few"}
        for number, prompt in enumerate(PROMPTS)
    ]
    data = save(tmp_path / "topics.jsonl", rows)
    return given | {"data": data, "groups": "topic", "held_out": 0.6}


def test_signals_are_measured_on_each_group_and_on_the_worst(grouped):
    built = build("files", grouped)
    assert {*built.groups} == {*built.held_out}
    policy, tokenizer = load_policy(built.reference), load_tokenizer(built.reference)
    asked = ("vowels_in_few_cvar_50", "vowels_cvar_50", "kl_cvar_50")
    common = {"seed": 0, "role": "tuning", "step": 1, "n": 9, "asked": asked}
    found = measure(policy, policy, tokenizer, built, **common)
    few, most = (found[f"vowels_in_{group}"] for group in ("few", "most"))
    assert found["vowels_worst_group"] == min(few, most) < max(few, most)
    drawn = evaluation_prompts(built.held_out, 0, "tuning", 1, 9, built.groups)
    counts = [sum(built.groups[prompt] == group for prompt in drawn) for group in ("few", "most")]
    assert found["vowels"] == pytest.approx((few * counts[0] + most * counts[1]) / 9)
    assert found["vowels_in_few_cvar_50"] <= few
    assert found["vowels_cvar_50"] <= found["vowels"]
    assert "kl_cvar_50" not in found, "it has no value for each prompt"
    del common["asked"]
    plain = measure(policy, policy, tokenizer, built, **common)
    assert {name: found[name] for name in plain} == plain


def test_an_evaluation_asks_every_group_then_by_their_shares():
    groups = {f"p{number}": "few" if number % 8 < 2 else "most" for number in range(80)}
    for step in range(5):
        drawn = evaluation_prompts([*groups], 0, "tuning", step, 20, groups)
        assert [groups[prompt] for prompt in drawn].count("few") == 5
        assert len({*drawn}) == 20
        least = evaluation_prompts([*groups], 0, "tuning", step, 1, groups)
        assert sorted(groups[prompt] for prompt in least) == ["few", "most"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": "colour"}, "no 'colour' in the row of the prompt"),
        ({"held_out": 0.1}, "no held-out prompt of '(few|most)' is for (tuning|test) seeds"),
        ({"groups": 3}, "expected a text"),
    ],
)
def test_groups_that_cannot_be_are_said_before_a_study(changes, message, grouped):
    with pytest.raises(InputError, match=message) as error:
        task("files", grouped | changes).check(grouped | changes)
    assert error.value.key == "environment.kwargs.groups"


def test_groups_of_the_proxy_are_as_little_to_select_by_as_the_proxy(grouped):
    place = EnvironmentSpec("files", FrozenMap(grouped), metrics=("answered_in_few_cvar_5",))
    trainer = load(TrainerSpec("rlhf/ppo"))
    reported = {*trainer.reported_metrics(place)}
    assert {"answered_in_few_cvar_5", "answered_worst_group", "vowels_in_most"} <= reported
    trainer.check_objective(place, ["answered_worst_group", "answered_in_few_cvar_5"])
    for metric in ("vowels_worst_group", "vowels_in_few", "vowels_cvar_5", "vowels_in_few_cvar_5"):
        with pytest.raises(InputError, match=f"'{metric}' is what files trains on"):
            trainer.check_objective(place, [metric])


def test_one_signal_may_be_trained_on_selected_by_and_reported(given):
    """As an answer that is checked; whether a study may, its trainer says, which knows `allow_proxy_selection`."""
    for changes in (
        {"selection": "vowels"},
        {"signals": dict.fromkeys(SIGNALS, "own_letter_rewards:vowels")},
    ):
        options = given | changes
        assert task("files", options).check(options) == ["prompts"]
    built = build("files", given | dict.fromkeys(NAMES, "vowels"))
    assert (built.training, built.selection, built.report) == ("vowels", "vowels", "vowels")


def test_a_policy_is_no_reward_model(given, models):
    from transformers import AutoModelForSequenceClassification

    two = models / "two"
    AutoModelForSequenceClassification.from_pretrained(
        models / "policy", num_labels=2
    ).save_pretrained(two)
    write_tokenizer(two, LETTERS)
    options = given | {"signals": SIGNALS | {"judge": str(two)}}
    with pytest.raises(InputError, match="expected one output, its head has 2"):
        task("files", options).check(options)


def test_a_model_in_the_cache_of_the_hub_is_found_by_its_name(models, tmp_path, monkeypatch):
    import huggingface_hub.constants

    commit = "0" * 40
    there = tmp_path / "hub" / "models--someone--tiny"
    shutil.copytree(models / "policy", there / "snapshots" / commit)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    found = model_folder("someone/tiny", "model")
    assert found == there / "snapshots" / commit
    assert model_folder(f"someone/tiny@{commit}", "model") == found
    assert load_policy(found).config.hidden_size == 16
    with pytest.raises(InputError, match="nothing of that name"):
        model_folder("someone/tiny@other", "model")


def test_weights_are_trained_in_single_precision(models, tmp_path):
    import torch

    load_policy(models / "policy").to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert load_policy(tmp_path / "half").dtype == torch.float32


def test_paths_of_a_study_are_made_absolute_and_names_are_left(tmp_path):
    """A function of a package beside the study stays a function."""
    for folder in ("base", "rewards"):
        (tmp_path / folder).mkdir()
    (tmp_path / "rows.jsonl").write_text("{}\n")
    names = {"held_out": 0.2, "prompts": "organisation/name:test"}
    signals = {"gold": "rewards:gold", "judge": "base"}
    given = FrozenMap(model="base", data="rows.jsonl", signals=signals, **names)
    found = pinned(given, str(tmp_path))
    paths = {"model": str(tmp_path / "base"), "data": str(tmp_path / "rows.jsonl")}
    assert found == names | paths | {"signals": signals | {"judge": paths["model"]}}
    assert pinned({"data": "rewards:test"}, str(tmp_path)) == {"data": f"{tmp_path}/rewards:test"}
