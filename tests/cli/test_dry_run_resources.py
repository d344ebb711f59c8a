"""--dry-run: how many segments run at once, on which devices, with which variables."""

from cli_support import as_json, autorl, study_file

from autorl.executors import machine

DEVICES = {"name": "processes", "devices": ["0", "1", "2", "3"]}


def lines(tmp_path, **changes):
    """The lines of the plan between `workers` and `checkpoints`, without the spaces of the columns."""
    text = autorl("tune", study_file(tmp_path, **changes), "--dry-run").stdout
    rows = [" ".join(line.split()) for line in text.splitlines()]
    begin = next(number for number, row in enumerate(rows) if row.startswith("workers"))
    end = next(number for number, row in enumerate(rows) if row.startswith("checkpoints"))
    # How idle they will be, behind a colon, is told by `tests/cli/test_dry_run.py`.
    return [rows[begin].partition(":")[0], *rows[begin + 1 : end]]


def test_a_study_that_asks_for_nothing_says_what_it_said(tmp_path):
    assert lines(tmp_path, executor={"name": "processes", "workers": 3}) == ["workers 3"]


def test_two_gpus_a_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 16.0)
    text = " ".join(lines(tmp_path, executor=DEVICES, resources={"gpu": 2, "cpu": 4}))
    assert text == (
        "workers 2 resources 4 cores, 2 GPUs a segment; at most 2 at once on this machine "
        "devices CUDA_VISIBLE_DEVICES = 0,1 (1 segment); 2,3 (1 segment) "
        "threads OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS, NUMEXPR_NUM_THREADS, "
        "VECLIB_MAXIMUM_THREADS = 4"
    )


def test_a_quarter_of_a_gpu_a_segment(tmp_path):
    executor = {"name": "processes", "devices": [0, 1], "workers": 6}
    text = " ".join(lines(tmp_path, executor=executor, resources={"gpu": 0.25}))
    assert text == (
        "workers 6 resources 1 core, 0.25 GPU a segment; at most 6 at once on this machine "
        "devices CUDA_VISIBLE_DEVICES = 0 (4 segments); 1 (2 segments)"
    )
    file = study_file(tmp_path, executor=executor, resources={"gpu": 0.25})
    plan = as_json("tune", file, "--dry-run")
    assert plan["workers"] == 6
    assert plan["placement"] == [
        {
            "algorithm": "",
            "needs": {"cpu": 1.0, "gpu": 0.25, "memory_gb": None, "nodes": 1, "custom": {}},
            "at_once": 6,
            "visible_devices": {"0": 4, "1": 2},
            "threads": 1,
        }
    ]


def test_each_algorithm_has_its_own(tmp_path):
    space = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}
    part = {"trainer": "synthetic", "space": space}
    text = " ".join(
        lines(
            tmp_path,
            trainer=None,
            space=None,
            algorithms={"large": part | {"resources": {"gpu": 4}}, "small": part},
            executor=DEVICES | {"workers": 5},
        )
    )
    assert "large: 1 core, 4 GPUs a segment; at most 1 at once" in text
    assert "large: CUDA_VISIBLE_DEVICES = 0,1,2,3 (1 segment)" in text
    assert "small: 1 core a segment; at most 5 at once" in text
    assert "small: CUDA_VISIBLE_DEVICES = none (5 segments)" in text
