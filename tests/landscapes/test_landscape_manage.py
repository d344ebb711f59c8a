"""Merging, deleting and exporting landscapes."""

import duckdb
import pandas as pd
import pytest
from landscape_samples import SEEDS, SPACE, manifest, tables
from refusals import expect_error

from autorl.core.types import FrozenMap, InputError
from autorl.landscapes import (
    Landscape,
    delete_landscape,
    list_landscapes,
    merge_landscapes,
    write_landscape,
)
from autorl.landscapes.export import export_table
from autorl.landscapes.manage import download_landscape, upload_landscape
from autorl.landscapes.validate import validate


def written(root, id="sample/dqn/CartPole-v1", first=0, count=4, seeds=None, **changes):
    rows = tables(first, count)
    if seeds is not None:
        rows.runs["seed"] += seeds
        rows.segments["seed"] += seeds
        changes["seeds"] = FrozenMap(
            {role: [seed + seeds for seed in each] for role, each in SEEDS.items()}
        )
    write_landscape(root / id, rows, manifest(id=id, **changes), SPACE)
    return Landscape(root / id)


def test_merged_landscapes_hold_all_runs_over_one_numbering(tmp_path):
    parts = [
        written(tmp_path, "a/dqn/CartPole-v1"),
        written(tmp_path, "b/dqn/CartPole-v1", first=2, seeds=10),
    ]
    done = merge_landscapes(parts, tmp_path, "all/dqn/CartPole-v1")
    merged = Landscape(tmp_path / "all/dqn/CartPole-v1")
    assert [str(problem) for problem in validate(merged.path)] == []
    assert (done.rows["configs"], done.rows["runs"], done.rows["evals"]) == (6, 40, 160)
    assert done.parents == ("a/dqn/CartPole-v1", "b/dqn/CartPole-v1")
    assert done.seeds == {"tuning": (0, 1, 2, 10, 11, 12), "test": (100, 101, 110, 111)}
    joined = "SELECT config_hash, seed, step, eval_return FROM evals JOIN runs USING (run_id) "
    joined += "JOIN configs USING (config_id)"
    for part in parts:
        mine, theirs = set(merged.sql(joined).fetchall()), set(part.sql(joined).fetchall())
        assert theirs <= mine


def test_what_does_not_belong_together_is_not_merged(tmp_path):
    first = written(tmp_path)
    expect_error("at least two", merge_landscapes, [first], tmp_path, "x/dqn/CartPole-v1")
    with pytest.raises(InputError, match="20 runs are in two of them"):
        merge_landscapes(
            [first, written(tmp_path, "b/dqn/CartPole-v1")], tmp_path, "x/dqn/CartPole-v1"
        )
    other = written(tmp_path, "c/dqn/Other-v1", environment="Other-v1")
    with pytest.raises(InputError, match="cannot be merged"):
        merge_landscapes([first, other], tmp_path, "x/dqn/CartPole-v1")
    swapped = written(tmp_path, "d/dqn/CartPole-v1", seeds=100)
    with pytest.raises(InputError, match="are test in sample"):
        merge_landscapes([first, swapped], tmp_path, "x/dqn/CartPole-v1")
    assert not (tmp_path / "x").exists()


def test_deleting_leaves_neighbours_alone(tmp_path):
    written(tmp_path)
    kept = written(tmp_path, "sample/ppo/CartPole-v1")
    delete_landscape(tmp_path / "sample/dqn/CartPole-v1")
    assert list_landscapes(tmp_path) == {"sample/ppo/CartPole-v1": kept.path}
    assert not (tmp_path / "sample/dqn").exists()
    (tmp_path / "mine").mkdir()
    expect_error("nothing was deleted", delete_landscape, tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()


def test_a_link_to_a_landscape_is_not_deleted(tmp_path):
    landscape = written(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(landscape.path)
    expect_error(r"is a link to .*nothing was deleted", delete_landscape, link)
    assert list_landscapes(tmp_path)["sample/dqn/CartPole-v1"] == landscape.path
    assert link.is_symlink()


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a_flat_table_has_every_evaluation(tmp_path, ending):
    landscape = written(tmp_path)
    assert export_table(landscape, tmp_path / f"flat{ending}") == 80
    file = tmp_path / f"flat{ending}"
    frame = duckdb.read_parquet(str(file)).df() if ending == ".parquet" else pd.read_csv(file)
    assert len(frame) == 80
    assert frame.eval_return.sum() == pytest.approx(
        landscape.sql("SELECT sum(eval_return) FROM evals").fetchall()[0][0]
    )
    assert {"seed_role", "learning_rate", "config_hash", "status"} <= set(frame)
    expect_error("is there already", export_table, landscape, tmp_path / f"flat{ending}")
    expect_error(r"\.csv", export_table, landscape, tmp_path / "x.txt")


# -- copies behind a URL -----------------------------------------------------------------------------------------------


def test_a_landscape_comes_back_from_a_url_as_it_was(tmp_path):
    sample = written(tmp_path / "mine")
    url = upload_landscape(sample, str(tmp_path / "bucket"))
    assert url.endswith("/bucket/sample/dqn/CartPole-v1")
    with pytest.raises(InputError, match="exists already: add --replace"):
        upload_landscape(sample, str(tmp_path / "bucket"))
    assert upload_landscape(sample, str(tmp_path / "bucket"), replace=True) == url
    found = download_landscape(url, tmp_path / "theirs")
    assert found == sample.manifest
    names = [path.relative_to(sample.path) for path in sample.path.rglob("*") if path.is_file()]
    for name in names:
        theirs = tmp_path / "theirs" / found.id / name
        assert theirs.read_bytes() == (sample.path / name).read_bytes()
    expect_error("is there already", download_landscape, url, tmp_path / "theirs")


@pytest.mark.parametrize(
    ("break_it", "rule"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"), "its SHA-256 differs"),
        (lambda file: file.unlink(), "no whole landscape: runs.parquet is missing"),
        (lambda file: (file.parent / "manifest.json").unlink(), "manifest.json is missing"),
    ],
    ids=["byte", "file", "manifest"],
)
def test_a_damaged_copy_writes_nothing(tmp_path, break_it, rule):
    url = upload_landscape(written(tmp_path / "mine"), str(tmp_path / "bucket"))
    break_it(tmp_path / "bucket/sample/dqn/CartPole-v1/runs.parquet")
    expect_error(rule, download_landscape, url, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
