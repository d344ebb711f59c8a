"""`resources` of a study file: what segments are given, what is refused, and that no table changes."""

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml
from patience import PATIENCE
from refusals import expect_error
from study_support import run_small, small_spec, table

from autorl.core.types import Config, FrozenMap, InputError, Resources
from autorl.executors import machine
from autorl.store.sessions import changes_text
from autorl.store.study_file import changed_keys
from autorl.study import Study, setup
from autorl.study.session import session
from autorl.study.setup import make_executor, trainer_loader
from autorl.study.spec import load_spec, thaw
from autorl.trainers import Trainer, TrainerInfo

# Notes what it was given, and holds each share of a device for as long as it runs: another that is
# given the same ends with an error. None goes on before as many have begun as the test expects.
SCRIPT = f"""
    import json, os, pathlib, sys, time
    folder, at_once, shares = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    held = []
    for device in visible.split(","):
        for share in range(shares):
            try:
                (folder / f"device-{{device}}.{{share}}").open("x").close()
            except FileExistsError:
                continue
            held.append(folder / f"device-{{device}}.{{share}}")
            break
        else:
            sys.exit(f"device {{device}} has another segment")
    (folder / f"began-{{os.getpid()}}").touch()
    end = time.monotonic() + {PATIENCE}
    while len(list(folder.glob("began-*"))) < at_once and time.monotonic() < end:
        time.sleep(0.01)
    print(json.dumps({{"step": int(sys.argv[4]), "eval_return": float(sys.argv[6]), "seed": int(sys.argv[5]),
                      "visible": visible, "omp": os.environ["OMP_NUM_THREADS"], "at_once": at_once}}))
    for file in held:
        file.unlink()
"""


def command_study(folder: Path, at_once: int, shares: int, resources, **changes):
    (folder / "held").mkdir()
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    words = ["{python}", "-S", "script.py", str(folder / "held"), str(at_once), str(shares)]
    study = {
        "trainer": {
            "name": "command",
            "kwargs": {"command": [*words, "{until}", "{seed}", "{x}"], "path": str(folder)},
        },
        "space": {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}},
        "fidelity": {"steps": 10, "evaluations": 1},
        "budget": {"runs": 6},
        "seeds": {"tuning": 1, "test": 0},
        "optimizer": "random",
        "parallelism": 6,
        "keep": {"checkpoints": "none"},
        "resources": resources,
    }
    return load_spec(study | changes)


def printed(folder: Path):
    """Return the words of each script, from the logs of the segments."""
    return [json.loads(log.read_text()) for log in sorted((folder / "logs").iterdir())]


def run(spec, folder: Path):
    study = Study.create(spec, folder)
    study.run()
    study.close()
    return printed(folder)


@pytest.mark.usefixtures("pretended_gpus")
def test_two_gpus_a_segment_and_two_segments_at_once(tmp_path):
    spec = command_study(
        tmp_path, 2, 1, {"gpu": 2, "cpu": 0.5}, executor={"devices": ["0", "1", "2", "3"]}
    )
    said = run(spec, tmp_path / "study")
    assert len(said) == 6
    assert {line["visible"] for line in said} == {"0,1", "2,3"}
    assert {line["omp"] for line in said} == {"1"}


@pytest.mark.usefixtures("pretended_gpus")
def test_a_quarter_of_a_gpu_a_segment_and_four_segments_on_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr(machine, "cores", lambda: 16.0)
    spec = command_study(tmp_path, 4, 4, {"gpu": 0.25, "cpu": 3})
    said = run(spec, tmp_path / "study")
    assert [line["visible"] for line in said] == ["5"] * 6
    assert {line["omp"] for line in said} == {"3"}


@pytest.mark.usefixtures("pretended_gpus")
def test_the_table_is_that_of_the_study_without_the_section(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2.0)
    changes = {"budget": {"runs": 8}, "seeds": {"tuning": 2, "test": 1}}
    run_small(tmp_path / "without", **changes)
    changes["executor"] = {"name": "processes", "devices": ["0"]}
    changes["resources"] = {"gpu": 0.5, "cpu": 1, "memory_gb": 0.01}
    study = Study.create(small_spec(**changes), tmp_path / "shared")
    study.run()
    study.close()
    assert table(tmp_path / "shared") == table(tmp_path / "without")


class Asking(TrainerInfo):
    def resources(self, trainer):
        return Resources(cpu=2.0, gpu=float(trainer.kwargs["gpus"]))


class AskingTrainer(Trainer):
    info = Asking()

    def train(self, segment, report):
        raise NotImplementedError


def algorithms(**first):
    part = {"trainer": "synthetic", "space": {"x": {"type": "float", "lower": 0, "upper": 1}}}
    return load_spec(
        {
            "algorithms": {"one": part | first, "two": part},
            "resources": {"cpu": 2, "memory_gb": 1},
            "fidelity": {"steps": 10},
            "budget": {"runs": 8},
        }
    )


def test_an_algorithm_comes_before_the_study_and_that_before_the_trainer():
    spec = algorithms(resources={"gpu": 2, "cpu": 3, "custom": {"disk": 0.5}})
    expected = Resources(cpu=3.0, gpu=2.0, memory_gb=1.0, custom=FrozenMap(disk=0.5))
    assert spec.resources_for(Config({"algorithm": "one", "one.x": 0.5})) == expected
    assert spec.resources_by_algorithm["two"] == Resources(cpu=2.0, memory_gb=1.0)
    asking = {
        "trainer": {"name": f"{__name__}:AskingTrainer", "kwargs": {"gpus": 4}},
        "space": {"x": {"type": "float", "lower": 0, "upper": 1}},
        "fidelity": {"steps": 10},
        "budget": {"runs": 8},
        "path": str(Path(__file__).parent),
    }
    assert load_spec(asking).resources_by_algorithm == {"": Resources(cpu=2.0, gpu=4.0)}
    stated = load_spec(asking | {"resources": {"gpu": 0.5}})
    assert stated.resources_by_algorithm == {"": Resources(cpu=2.0, gpu=0.5)}


def test_resources_are_no_part_of_the_study():
    plain = algorithms()
    for other in (
        algorithms(resources={"gpu": 2}),
        plain.changed(resources=None),
        plain.changed(resources=small_spec(resources={"nodes": 3}).resources),
    ):
        assert other.same_study(thaw(plain.freeze(), "study.yaml"))
        assert plain.same_study(thaw(other.freeze(), "study.yaml"))
        before, now = yaml.safe_load(plain.freeze()), yaml.safe_load(other.freeze())
        assert changed_keys(before, now) == {}
    assert thaw(plain.freeze(), "x").freeze() == plain.freeze()
    named = {"algorithms": {"one": {"space": {"hyperparameters": {"resources": {"lower": 0}}}}}}
    assert changed_keys(named, {}) != {}
    without = yaml.safe_load(small_spec().freeze())
    assert "resources" not in without
    assert "resources" not in yaml.safe_load(plain.freeze())["algorithms"]["one"]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"gpu": 1.5}, "gpu: expected a share of one GPU such as 0.25, or a whole number, got 1.5"),
        ({"gpu": -1}, "gpu: should be greater than or equal to 0, got -1"),
        ({"gpu": True}, "gpu: expected a number, got True"),
        ({"cpu": 0}, "cpu: should be greater than 0, got 0"),
        ({"cpu": "4"}, "cpu: expected a number, got '4'"),
        ({"memory_gb": -0.5}, "memory_gb: should be greater than 0, got -0.5"),
        ({"memory_gb": float("inf")}, "memory_gb: should be"),
        ({"nodes": 0}, "nodes: should be greater than or equal to 1, got 0"),
        ({"nodes": 1.5}, "nodes: should be a valid integer"),
        ({"custom": {"tpu": 0}}, "custom.tpu: should be greater than 0, got 0"),
        ({"custom": {"GPU": 1}}, "custom: expected names of a cluster's own resources, got 'GPU'"),
        ({"custom": ["tpu"]}, "custom: should be a mapping of keys, got"),
        ({"gpus": 1}, "gpus: unknown key 'gpus'; did you mean 'gpu'?"),
        (3, "resources: should be a mapping of keys, got 3"),
    ],
)
def test_bad_resources_are_one_line_with_their_place(tmp_path, resources, message):
    study = yaml.safe_load(small_spec().freeze()) | {"resources": resources}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    said = str(expect_error("", load_spec, path))
    assert message in said
    assert said.startswith(f"{path}:")


@pytest.mark.parametrize("gpu", [0, 0.3, 1, 1.0, 8])
def test_shares_and_whole_numbers_of_gpus_are_allowed(gpu):
    assert small_spec(resources={"gpu": gpu}).resources_by_algorithm[""].gpu == gpu


NO_GPUS = "assigns no GPUs to segments: use `processes`, `ray` or `slurm`"


@pytest.mark.parametrize(
    ("needed", "amount", "executor", "message"),
    [
        ("gpu", 8, {"devices": [0, 1]}, "8 GPUs a segment, but there are 2"),
        ("memory_gb", 10_000, {}, "10000 GiB a segment, but this machine has 8.0"),
        ("cpu", 999, {}, "999 cores a segment, but this machine has 4"),
        ("gpu", 1, {}, "GPUs are asked for, and CUDA_VISIBLE_DEVICES='' shows none here"),
        ("gpu", 1, {"name": "in_process"}, f"`in_process` {NO_GPUS}"),
        ("gpu", 1, {"name": "threads"}, f"`threads` {NO_GPUS}"),
        ("nodes", 2, {}, "2 hosts a segment: `processes` has one, use the executor `ray`"),
        ("custom", {"tpu": 1}, {}, "tpu: only nodes of Ray have such, use the executor `ray`"),
    ],
)
def test_what_this_machine_has_not_is_one_line(
    tmp_path, monkeypatch, needed, amount, executor, message
):
    monkeypatch.setattr(machine, "cores", lambda: 4.0)
    monkeypatch.setattr(machine, "memory_gb", lambda: 8.0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    spec = small_spec(
        resources={needed: amount}, executor={"name": "processes", "workers": 1} | executor
    )
    with pytest.raises(InputError) as refused:
        Study.create(spec, tmp_path / "study")
    assert str(refused.value) == f"resources.{needed}: {message}"
    assert not (tmp_path / "study").exists()
    expect_error(f"resources.{needed}", make_executor, spec, trainer_loader(spec))


CPU_ALONE = "trains on the CPU alone: leave this out"


@pytest.mark.parametrize(
    ("trainer", "device", "gpu", "said"),
    [
        ("sb3/ppo", None, 0, "cpu"),
        ("sb3/ppo", "auto", 0.25, "cuda"),
        ("sb3/ppo", "cpu", 0, "cpu"),
        ("trl/rloo", "cuda", 1, "cuda"),
        ("command", "mps", 2, None),
        ("sb3/ppo", "cuda", 0, "kwargs.device: `cuda` is for segments with a GPU: add `resources:"),
        ("trl/rloo", "cpu", 1, "kwargs.device: `cpu` leaves the GPU of `resources` idle"),
        ("sb3/ppo", "cuda:1", 1, "kwargs.device: expected auto, cpu or cuda, got 'cuda:1'"),
        ("trl/dpo", None, 2, "cuda"),
        ("sb3/ppo", None, 2, "resources.gpu: sb3/ppo trains a segment on one GPU, got 2"),
        ("rlhf/ppo", "auto", 0, f"trainer.kwargs.device: rlhf/ppo {CPU_ALONE}"),
        ("rlhf/ppo", None, 1, f"resources.gpu: rlhf/ppo {CPU_ALONE}"),
        ("population/ppo", None, 1, f"resources.gpu: population/ppo {CPU_ALONE}"),
        ("offline/bc", None, 1, f"resources.gpu: offline/bc {CPU_ALONE}"),
        ("tabular", None, 1, f"resources.gpu: tabular {CPU_ALONE}"),
    ],
)
def test_segments_train_on_the_gpu_that_they_are_given(trainer, device, gpu, said):
    kwargs = {} if device is None else {"device": device}
    spec = load_spec(
        {
            "trainer": {"name": trainer, "kwargs": kwargs},
            "space": {"x": "uniform(0, 1)"},
            "fidelity": {"steps": 10},
            "budget": {"runs": 8},
            "resources": {"gpu": gpu},
        }
    )
    if said in ("cpu", "cuda", None):
        setup._check_device(spec, "")
        assert spec.devices == {"": said}
        told = {"cpu": None, "cuda": "cuda", None: device}[said]
        assert spec.trainers[""].kwargs.get("device") == told
    else:
        expect_error(re.escape(said), setup._check_device, spec, "")


@pytest.mark.usefixtures("pretended_gpus")
def test_gpus_that_are_not_here_are_one_line_before_the_study(monkeypatch):
    monkeypatch.setattr("torch.version.cuda", None)
    for devices, message in (
        ([9], "executor.devices: there is no CUDA device 9 here"),
        ([0], "resources.gpu: torch .* was built without CUDA"),
    ):
        spec = small_spec(executor={"name": "processes", "devices": devices}, resources={"gpu": 1})
        spec = spec.changed(trainer=spec.trainer.model_copy(update={"name": "sb3/ppo"}))
        expect_error(message, setup.check_answers, spec)


HUNGRY = """
def f(config, *, seed):
    return len(b"x" * (config["mb"] << 20)) / 2**20
"""


def test_a_bound_on_memory_binds(tmp_path):
    (tmp_path / "hungry.py").write_text(HUNGRY)
    spec = load_spec(
        {
            "trainer": "python:hungry.py:f",
            "path": str(tmp_path),
            "space": {"mb": [0, 500]},
            "optimizer": "grid",
            "budget": {"runs": 2},
            "seeds": {"tuning": 1, "test": 0},
            "constraints": [{"metric": "peak_memory_mb", "max": 450}],
            "executor": {"name": "processes", "workers": 1},
        }
    )
    assert spec.indeterminate == "the metric peak_memory_mb"
    study = Study.create(spec, tmp_path / "study")
    result = study.run()
    assert result.best_params == {"mb": 0}
    trials = result.trials().set_index("params_mb")
    assert trials.peak_memory_mb[0] < 450 < 500 < trials.peak_memory_mb[500]


def test_a_session_with_more_threads_is_said():
    recorded = [
        session(small_spec(executor={"name": "processes"}, resources=resources), {})
        for resources in (None, {"gpu": 0.5, "memory_gb": 1}, {"cpu": 4.5})
    ]
    assert changes_text(recorded[:2]) is None
    assert changes_text(recorded) == (
        "sessions computed with other code, so one session may give another table: "
        "threads of a segment 1, then 4"
    )
    earlier = {key: value for key, value in recorded[0].items() if key != "threads"}
    assert changes_text([earlier, recorded[2]]) is None
