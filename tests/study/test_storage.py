"""Checkpoints and copies of the database in a storage: same table, one driver, whole or not at all."""

import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from refusals import expect_error
from study_support import StoppedError, resume, run_small, small_spec, stop_after, table
from test_kill import after_events, run_and_die
from typer.testing import CliRunner

from autorl.cli.app import app
from autorl.core.types import StorageError, StudyError
from autorl.executors.worker import NO_STORAGE
from autorl.store import lease, remote
from autorl.store import offsite as offsites
from autorl.store.offsite import checkpoint_names, database_copies
from autorl.store.remote import RemoteFolder
from autorl.study import Study
from autorl.study.folder.opening import take_over
from autorl.study.folder.safety import backup, verify

ASHA = {"optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 12}, "parallelism": 4}
TPE = {"optimizer": {"name": "tpe", "startup": 3}, "budget": {"runs": 12}}
PBT = {
    "optimizer": {"name": "pbt", "population": 4, "generations": 3, "exploit": "average"},
    "budget": {"runs": 8},
    "parallelism": 4,
}
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "_WAITS", ())


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path, monkeypatch):
    if request.param == "file":
        return f"file://{tmp_path}/storage"
    monkeypatch.setattr(remote, "_FORGETS", ())
    return f"memory://study-{os.getpid()}-{next(_numbers)}"


def names_in(url):
    """Name the files of a storage, without the probes and beats of drivers."""
    return {name for name in RemoteFolder(url).objects() if not name.startswith("lease/")}


def saved_names(folder):
    """The checkpoints that the log of a finished study names."""
    study = Study.open(folder)
    names = {checkpoint.path.rpartition("/")[2] for checkpoint in study.driver.work.saved.values()}
    study.close()
    return names


# -- the same table --------------------------------------------------------------------------------


def test_a_study_with_a_storage_has_the_same_table(tmp_path, url):
    run_small(tmp_path / "plain", **ASHA)
    run_small(tmp_path / "stored", **ASHA, storage=url)
    assert table(tmp_path / "stored") == table(tmp_path / "plain")
    checkpoints = tmp_path / "stored" / "checkpoints"
    assert not checkpoints.exists() or list(checkpoints.iterdir()) == []
    assert set(checkpoint_names(RemoteFolder(url))) == saved_names(tmp_path / "stored")


@pytest.mark.parametrize("changes", [TPE, ASHA, PBT], ids=["tpe", "asha", "pbt"])
def test_a_study_goes_on_from_a_copy_of_nothing_but_its_storage(tmp_path, monkeypatch, changes):
    """Killed with events that no copy has; the copy lies, and goes on, in other folders."""
    monkeypatch.setattr(offsites, "BACKUP_SECONDS", 0.0)
    run_small(tmp_path / "plain", **changes)
    first = tmp_path / "first machine"
    spec = {**changes, "storage": f"file://{first}/storage"}
    assert not run_and_die(first / "study", spec, after_events(31))
    copied = tmp_path / "second machine" / "copied"
    shutil.copytree(first / "storage", copied)
    shutil.rmtree(first)
    shutil.rmtree(tmp_path / "cache")
    url = f"file://{copied}"
    lost = 31 + 1 - database_copies(RemoteFolder(url))[0].events
    assert lost > 0
    folder = take_over(url, tmp_path / "second machine" / "goes on")
    resume(folder)
    assert table(folder) == table(tmp_path / "plain")
    assert verify(folder).whole
    # What was saved after the copy is an orphan: it is gone, or there again under another epoch.
    assert set(checkpoint_names(RemoteFolder(url))) == saved_names(folder)


# -- kills and damage ------------------------------------------------------------------------------


def test_killed_inside_uploads_a_study_has_the_same_table(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/storage"
    run_small(tmp_path / "plain", **ASHA)

    def die_in_upload(study):
        left = [7]
        send = RemoteFolder.send

        def killed(self, file, name):
            send(self, file, name)
            if "/checkpoints/" in self.url:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(RemoteFolder, "send", killed)

    halves = 0
    for _ in range(60):
        if run_and_die(tmp_path / "stored", {**ASHA, "storage": url}, die_in_upload):
            break
        halves += 1
    assert halves > 2
    assert table(tmp_path / "stored") == table(tmp_path / "plain")
    assert set(checkpoint_names(RemoteFolder(url))) == saved_names(tmp_path / "stored")


def interrupted(folder, events, **changes):
    """A study with a storage that was left after so many events."""
    study = Study.create(small_spec(**changes), folder)
    stop_after(study, events)
    with pytest.raises(StoppedError):
        study.run()
    return study


def test_a_torn_checkpoint_counts_as_gone_and_is_kept(tmp_path):
    run_small(tmp_path / "plain", **ASHA)
    url = f"file://{tmp_path}/storage"
    interrupted(tmp_path / "stored", 30, **ASHA, storage=url).close()
    shutil.rmtree(tmp_path / "cache")
    states = sorted((tmp_path / "storage").glob("checkpoints/*/state.autorl"))
    assert len(states) > 2
    for state in states:
        state.write_text(state.read_text().replace("1", "2"))
    resume(tmp_path / "stored")
    scores = table(tmp_path / "stored")["reductions"], table(tmp_path / "stored")["tests"]
    assert scores == (table(tmp_path / "plain")["reductions"], table(tmp_path / "plain")["tests"])
    assert list((tmp_path / "storage" / "checkpoints" / "damaged").iterdir())


def test_a_storage_that_fails_ends_the_session_and_nothing_is_lost(tmp_path, monkeypatch):
    """It is no failure of a configuration."""
    run_small(tmp_path / "plain", **ASHA)
    url = f"file://{tmp_path}/storage"
    changes = {**ASHA, "failures": {"retries": 0}}
    study = Study.create(small_spec(**changes, storage=url), tmp_path / "stored")
    upload = RemoteFolder.upload
    left = [4]

    def flaky(self, folder):
        left[0] -= 1
        if left[0] == 0:
            raise StorageError("storage: cannot be written (no route to host)")
        return upload(self, folder)

    monkeypatch.setattr(RemoteFolder, "upload", flaky)
    expect_error(f"{NO_STORAGE}.*no route to host", study.run, kind=StudyError)
    study.close()
    resume(tmp_path / "stored")
    assert table(tmp_path / "stored") == table(tmp_path / "plain")


# -- two drivers -----------------------------------------------------------------------------------


def test_the_second_driver_takes_over_and_the_first_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(offsites, "BACKUP_SECONDS", 0.0)
    run_small(tmp_path / "plain", **ASHA)
    url = f"file://{tmp_path}/storage"
    first = interrupted(tmp_path / "first", 25, **ASHA, storage=url)
    del first.store._write  # nobody is told any more
    expect_error("another driver works on this study", take_over, url, tmp_path / "second")
    assert not (tmp_path / "second").exists()
    with monkeypatch.context() as much_later:
        much_later.setattr(lease, "EXPIRE_SECONDS", -1.0)
        second = Study.open(take_over(url, tmp_path / "second"))
    stop_after(second, 9)
    with pytest.raises(StoppedError):
        second.run()
    copies = database_copies(RemoteFolder(url))
    with pytest.raises(StudyError, match=r"was taken over by another driver \(process .*epoch 2\)"):
        first.run()
    first.close()
    assert database_copies(RemoteFolder(url)) == copies
    second.close()
    resume(tmp_path / "second")
    assert table(tmp_path / "second") == table(tmp_path / "plain")
    expect_error("has gone on from another folder", Study.open, tmp_path / "first")
    assert verify(tmp_path / "second").whole


def test_a_study_that_is_moved_back_knows_its_epochs(tmp_path):
    """The second session of the log has the third epoch of the storage: its checkpoints say so."""
    url = f"file://{tmp_path}/storage"
    interrupted(tmp_path / "first", 12, **ASHA, storage=url).close()
    Study.open(tmp_path / "first").close()  # an epoch without a session
    resume(tmp_path / "first")
    epochs = {name.rsplit("-", 2)[1] for name in checkpoint_names(RemoteFolder(url))}
    assert epochs <= {"1", "3"}
    assert "3" in epochs


# -- what reads checkpoints ------------------------------------------------------------------------


def test_verify_reads_the_storage(tmp_path):
    url = f"file://{tmp_path}/storage"
    run_small(tmp_path / "stored", storage=url, keep={"checkpoints": "lineage"})
    verdict = verify(tmp_path / "stored")
    assert (verdict.whole, verdict.checkpoints > 5) == (True, True)
    torn = next((tmp_path / "storage").glob("checkpoints/*/state.autorl"))
    torn.write_text("{}")
    problems = verify(tmp_path / "stored").problems
    assert [problem.partition(": ")[2] for problem in problems] == [
        "state.autorl differs from what was saved"
    ]


def test_a_backup_needs_no_storage(tmp_path):
    url = f"file://{tmp_path}/storage"
    run_small(tmp_path / "plain", **ASHA)
    interrupted(tmp_path / "stored", 30, **ASHA, storage=url).close()
    made = backup(tmp_path / "stored", tmp_path / "copy")
    assert made.checkpoints == len(list((tmp_path / "copy" / "checkpoints").iterdir())) > 0
    shutil.rmtree(tmp_path / "storage")
    resume(tmp_path / "copy")
    assert table(tmp_path / "copy") == table(tmp_path / "plain")


# -- the command line ------------------------------------------------------------------------------


def study_file(folder: Path, **changes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    spec = yaml.safe_load(small_spec(**changes).freeze())
    for key in ("path", "storage"):
        spec.pop(key, None)
    (folder / "study.yaml").write_text(yaml.safe_dump(spec | changes, sort_keys=False))
    return folder / "study.yaml"


def autorl(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_study_is_begun_and_taken_over_by_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_small(tmp_path / "plain", **ASHA)
    file = study_file(tmp_path / "files", **ASHA)
    autorl("tune", file, "--storage", "storage", "--out", "first", "--quiet")
    assert (tmp_path / "storage" / "study.yaml").is_file()
    (tmp_path / "storage").rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "first")
    autorl("resume", "second", "--storage", "moved", "--quiet")
    assert table(tmp_path / "second") == table(tmp_path / "plain")
    autorl("resume", "second", "--storage", "moved", "--quiet")
    refused = autorl("resume", "plain", "--storage", "moved", code=2)
    assert "holds a study that is not stored in file://" in refused.stderr


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("s5://bucket/x", "unknown protocol s5://"),
        ("s3://bucket/x", "s3:// needs a package that is not installed"),
        ("http://localhost:1/x", "http://"),
        ("blocked/x", "cannot be written"),
        ("taken", "holds a study already"),
    ],
)
def test_a_bad_storage_is_one_line_and_nothing_is_begun(tmp_path, monkeypatch, storage, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocked").write_text("a file")
    file = study_file(tmp_path / "files")
    autorl("tune", file, "--storage", "taken", "--out", "first", "--quiet")
    before = names_in(f"file://{tmp_path}/taken")
    refused = autorl("tune", file, "--storage", storage, "--out", "second", code=2)
    assert words in refused.stderr
    assert "storage" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "second").exists()
    assert names_in(f"file://{tmp_path}/taken") == before


def test_a_storage_of_another_study_is_refused_and_left(tmp_path):
    """A study file may be given another storage: not that of another study."""
    url = f"file://{tmp_path}/storage"
    run_small(tmp_path / "first", storage=url)
    run_small(tmp_path / "second", seed=1)
    text = (tmp_path / "second" / "study.yaml").read_text()
    (tmp_path / "second" / "study.yaml").write_text(f"{text}storage: {url}\n")
    before = names_in(url)
    expect_error("holds another study", Study.open, tmp_path / "second")
    assert names_in(url) == before
    (tmp_path / "second" / "study.yaml").write_text(f"{text}storage: {url}-2\n")
    Study.open(tmp_path / "second").close()
    assert database_copies(RemoteFolder(f"{url}-2"))
