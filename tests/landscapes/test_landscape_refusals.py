"""Refusals of the landscape commands: one line, exit code 2, and nothing is lost."""

from landscape_samples import SPACE, manifest, tables
from typer.testing import CliRunner

from autorl.cli import app
from autorl.landscapes import write_landscape


def autorl(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_landscape_of_the_package_is_not_deleted(tmp_path, monkeypatch):
    write_landscape(tmp_path / "package" / "sample/dqn/CartPole-v1", tables(), manifest(), SPACE)
    monkeypatch.setattr("autorl.landscapes.library.shipped_root", lambda: tmp_path / "package")
    monkeypatch.setattr("autorl.cli.landscape_files.shipped_root", lambda: tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--yes",)):
        said = autorl("landscape", "delete", "sample/dqn/CartPole-v1", *options, code=2).stderr
        assert "come with the package: nothing was deleted" in said
    assert (tmp_path / "package" / "sample/dqn/CartPole-v1" / "manifest.json").is_file()


def test_an_unknown_landscape_says_how_many_more_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr("autorl.landscapes.landscape.shipped_root", lambda: None)
    monkeypatch.setattr(
        "autorl.landscapes.landscape.list_landscapes",
        lambda root: {f"a/b/{n:02}": tmp_path for n in range(23)},
    )
    (tmp_path / "landscapes").mkdir()
    monkeypatch.chdir(tmp_path)
    said = autorl("landscape", "info", "elsewhere", code=2).stderr
    assert "`autorl landscape list` has: a/b/" in said
    assert said.endswith(" and 3 more\n")


def test_an_export_of_another_ending_names_all_there_are(tmp_path):
    write_landscape(tmp_path / "l", tables(), manifest(), SPACE)
    said = autorl("landscape", "export", tmp_path / "l", tmp_path / "foo.xlsx", code=2).stderr
    for ending in (
        ".csv",
        ".csv.gz",
        ".parquet",
        ".db",
        ".sqlite",
        ".sqlite3",
        ".journal",
        "without an ending",
    ):
        assert ending in said


def test_an_exported_run_comes_back_under_its_id_and_a_folder_in_the_way_names_replace(tmp_path):
    write_landscape(tmp_path / "l", tables(), manifest(), SPACE)
    autorl("landscape", "export", tmp_path / "l", tmp_path / "run")
    into = ("landscape", "import", tmp_path / "run", "--out", tmp_path / "out")
    autorl(*into)
    assert (tmp_path / "out" / manifest().id / "manifest.json").is_file()
    assert "is there already" in autorl(*into, code=2).stderr
    autorl(*into, "--replace")
