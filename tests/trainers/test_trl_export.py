"""Models of RLHF studies for other programs: read by transformers itself, written once, the checkpoint untouched."""

import json
import os
import shutil
from pathlib import Path

import pytest
from refusals import expect_error

pytest.importorskip("trl", reason="needs the extra rlhf")

from segments import segment, train

from autorl.core.types import Checkpoint, InputError, TrainerSpec
from autorl.store.checkpoints import folder_size
from autorl.trainers import load

export_model = load(TrainerSpec("trl/rloo")).export_model
load_model = load(TrainerSpec("trl/rloo")).load_model
pytestmark = pytest.mark.cpu_seconds(600)  # the first to run builds the task
SMALL = {
    "rloo": {"num_generations": 4, "learning_rate": 1e-2},
    "ppo": {"batch_size": 16},
    "reward": {},
}


def trained(folder: Path, name: str, **changes) -> Checkpoint:
    """The checkpoint of one optimizer step."""
    own = {} if name == "ppo" else {"per_device_train_batch_size": 16}
    of_run = {"evaluate_at": (), "seed": 3, **changes}
    place = folder / name
    one = segment(f"trl/{name}", "letters-goldproxy", SMALL[name], 1, place, own, **of_run)
    return train(one).checkpoint


@pytest.fixture(scope="module")
def rloo(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("rloo"), "rloo")


def contents(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in paths
    }


def logits(model, tokenizer, text="ab"):
    import torch

    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)).logits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rloo", "ppo"])
def test_transformers_reads_the_folder_and_finds_the_policy_of_the_checkpoint(tmp_path, name):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from autorl.trainers.language.tasks import build

    checkpoint = trained(tmp_path, name)
    before = contents(checkpoint.path)
    folder = export_model(checkpoint, tmp_path / "out" / "model").path
    assert contents(checkpoint.path) == before
    shutil.move(checkpoint.path, tmp_path / "away")  # nothing in the folder leads back to it
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    here = logits(model, tokenizer)
    moved = load_model(Checkpoint("one", str(tmp_path / "away")))
    assert torch.equal(here, logits(moved, tokenizer))
    untrained = AutoModelForCausalLM.from_pretrained(build("letters-goldproxy", {}).reference)
    assert not torch.equal(here, logits(untrained, tokenizer))
    assert model.config.use_cache, "TRL switches it off while it trains"
    assert GenerationConfig.from_pretrained(folder).eos_token_id == tokenizer.eos_token_id
    names = {path.name for path in folder.iterdir()}
    assert "model.safetensors" in names
    of_training = {"state.autorl", "trainer_state.json", "optimizer.pt", "scheduler.pt"}
    assert not names & {*of_training, "rng_state.pth"}
    assert os.listdir(tmp_path / "out") == ["model"]


@pytest.mark.slow
def test_a_reward_model_is_a_classifier_with_one_output(tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    checkpoint = trained(tmp_path, "reward")
    folder = export_model(checkpoint, tmp_path / "model").path
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert logits(model, tokenizer).shape == (1, 1)
    assert type(load_model(checkpoint)) is type(model)
    assert float(logits(load_model(checkpoint), tokenizer)) == float(logits(model, tokenizer))


@pytest.mark.parametrize("name", ["rloo", "ppo"])
def test_a_test_seed_keeps_the_weights_alone(tmp_path, name):
    checkpoint = trained(tmp_path, name, model_only=True, role="test")
    assert not (Path(checkpoint.path) / "optimizer.pt").exists()
    assert folder_size(Path(checkpoint.path)) < 450_000, "1,044 kB with the state of the training"
    load_model(checkpoint)
    with pytest.raises(InputError, match="is a model alone: training cannot go on from it"):
        trained(tmp_path, f"{name}", model_only=True, role="test", parent=checkpoint, start=1)


def test_a_name_that_is_taken_is_refused_and_what_is_there_stays(rloo, tmp_path):
    for make in (Path.mkdir, Path.touch, lambda path: path.symlink_to(tmp_path / "nowhere")):
        taken = tmp_path / make.__name__
        make(taken)
        expect_error("is there already", export_model, rloo, taken)
    assert sorted(os.listdir(tmp_path)) == sorted(["mkdir", "touch", "<lambda>"])
    assert not any((tmp_path / "mkdir").iterdir())


@pytest.mark.parametrize("name", ["m.zip", "m.ZIP", "m.safetensors", "m.gguf"])
def test_the_name_of_a_file_is_refused_in_one_line(rloo, tmp_path, name):
    expect_error(r"is a folder, .* such as m$", export_model, rloo, tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_dot_in_a_name_is_no_ending(rloo, tmp_path):
    assert (export_model(rloo, tmp_path / "letters-0.5").path / "config.json").is_file()


def test_a_full_disk_leaves_nothing(rloo, tmp_path, monkeypatch):
    def full(source, target):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    expect_error("No space left on device", export_model, rloo, tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_a_folder_that_came_meanwhile_stays(rloo, tmp_path, monkeypatch):
    copy = shutil.copyfile

    def slow(source, target):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / "theirs").touch()
        return copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", slow)
    expect_error("cannot be written", export_model, rloo, tmp_path / "model")
    assert contents(tmp_path).keys() == {"model/theirs"}


def test_another_folder_is_no_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({}))
    for use in (lambda one: export_model(one, tmp_path / "model"), load_model):
        with pytest.raises(InputError, match="is not a checkpoint of a trainer of language models"):
            use(Checkpoint("x", str(tmp_path)))


def test_trainers_say_what_a_model_is_called():
    names = {"trl/rloo": "model", "trl/ppo": "model", "population/ppo": "model.zip"}
    names["synthetic"] = ""
    assert {name: load(TrainerSpec(name)).model_name for name in names} == names
    with pytest.raises(InputError, match="no models"):
        load(TrainerSpec("synthetic")).export_model(Checkpoint("s", "nowhere"), "out")
