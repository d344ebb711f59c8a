"""`autorl judge`, `ledger` and `noise` on small studies and revisions of a script."""

import json
import os
import signal
import subprocess
import sys

import pytest
from cli_support import autorl, study_file
from typer.testing import CliRunner

from autorl.cli import app
from autorl.statistics import verdict
from autorl.study.judging.book import Entry, expected_gains

SCRIPT = """\
import argparse, random
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
print(f"score={GAIN + random.Random(parser.parse_args().seed).gauss(0, 1)}")
"""
RUN = "{python} train.py --seed {seed}"


pytestmark = pytest.mark.usefixtures("few_verdict_draws")


def judge(*words, code):
    done = CliRunner().invoke(app, ["judge", *words, "--json"])
    assert (done.exit_code, done.stderr) == (code, "")
    return json.loads(done.stdout)


def git(folder, *words):
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits of a script: the second gains five standard deviations."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for gain in (0, 5):
        (folder / "train.py").write_text(SCRIPT.replace("GAIN", str(gain)))
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"gain {gain}")
    monkeypatch.chdir(folder)
    return folder


def test_a_configuration_is_kept_and_then_nothing_is_trained_again(tmp_path):
    study = str(study_file(tmp_path))
    words = ("default", "x=0.7,rate=0.2", "--study", study, "--out", str(tmp_path / "out"))
    first = judge(*words, code=0)
    assert first["verdict"] == "keep"
    assert first["difference"] > first["at_least"] > 0
    assert set(first["seeds"]["tuning"]["edit"]).isdisjoint(first["seeds"]["test"]["edit"])
    assert set(first["seeds"]["test"]["edit"]).isdisjoint(first["seeds"]["test"]["baseline"])
    again = judge(*words, code=0)
    assert again.pop("trained_now") == 0 < first.pop("trained_now")
    assert again == first


def test_the_worse_is_discarded_and_too_few_runs_decide_nothing(tmp_path):
    words = ("--study", str(study_file(tmp_path)), "--out", str(tmp_path / "out"))
    assert judge("x=0.7,rate=0.2", "default", *words, code=1)["verdict"] == "discard"
    few = judge("default", "x=0.7,rate=0.2", *words, "--max-runs", "2", code=2)
    assert (few["verdict"], "--max-runs" in few["why"]) == ("undecided", True)


def test_any_number_of_workers_gives_the_same_verdict_and_table(tmp_path):
    study = str(study_file(tmp_path, executor={"name": "processes"}))
    answers = []
    for workers in ("1", "3"):
        words = ("default", "x=0.5", "--study", study, "--workers", workers)
        done = autorl("judge", *words, "--out", str(tmp_path / workers), "--json")
        answers.append({**json.loads(done.stdout), "trained_now": 0, "hours": 0})
    assert answers[0] == answers[1]


def test_revisions_are_checked_out_beside_the_user_s_tree(repository):
    (repository / "train.py").write_text("not committed")
    answer = judge("HEAD~1", "HEAD", "--run", RUN, code=0)
    assert (answer["verdict"], answer["difference"] > 2) == ("keep", True)
    assert (repository / "train.py").read_text() == "not committed"
    status = ["git", "-C", str(repository), "status", "--porcelain"]
    done = subprocess.run(status, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["M", "train.py"]


def test_commands_are_judged_and_found_again_beside_worktrees(repository):
    """A folder of judgements in the working folder is no code that a command imports."""
    words = (RUN, RUN.replace("train", "other"))
    (repository / "other.py").write_text(SCRIPT.replace("GAIN", "0"))
    first = judge(*words, code=1)
    judge("HEAD~1", "HEAD", "--run", RUN, code=0)
    assert judge(*words, code=1)["trained_now"] == 0 < first["trained_now"]


def test_killed_anywhere_and_resumed_it_has_the_same_verdict_and_table(repository):
    command = [sys.executable, "-m", "autorl", "judge", "HEAD~1", "HEAD", "--run", RUN, "--json"]
    whole = subprocess.run([*command, "--out", "whole"], capture_output=True, text=True)
    for number in (0, 3, 7):
        # Killed while it trains the run of this number, as its log appears.
        process = subprocess.Popen([*command, "--out", "killed"], stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if len([*repository.glob("killed/runs/*/logs/*")]) > 2 * number:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
    resumed = subprocess.run([*command, "--out", "killed"], capture_output=True, text=True)
    answers = [json.loads(done.stdout) for done in (whole, resumed)]
    for answer in answers:
        del answer["trained_now"], answer["hours"]
    assert answers[0] == answers[1]
    assert whole.returncode == resumed.returncode == 0


def test_a_ledger_moves_its_baseline_on_keep_alone_and_counts_failures(tmp_path):
    study, folder = str(study_file(tmp_path)), tmp_path / "ledger"
    words = ("--study", study, "--ledger", str(folder))
    judge("default", "x=0.4", *words, "--pool", "10", code=0)
    judge("x=0.0", *words, code=1)
    answer = judge("x=0.7,rate=0.2", *words, code=0)
    assert answer["baseline"] == "x=0.4"
    again = judge("x=0.7,rate=0.2", "x=0.69", *words, code=1)
    assert again["baseline"] == "x=0.7,rate=0.2"
    page = json.loads(autorl("ledger", str(folder), "--json").stdout)
    assert [row["verdict"] for row in page["judgements"]] == ["keep", "discard", "keep", "discard"]
    assert 0 < page["expected_gain"] < page["found_gain"] * 1.5
    failed = sum(
        row["seeds"] == "held-out" and row["verdict"] != "keep" for row in page["judgements"]
    )
    assert page["next_level"] == verdict.level_after(failed)
    assert "expected to survive" in autorl("ledger", str(folder)).stdout
    assert min(answer["seeds"]["test"]["edit"]) >= 1_000 * 4


def test_a_kept_edit_is_worth_what_its_runs_as_the_baseline_say():
    runs = {
        "a": {"mean": 0.0, "spread": 1.0, "runs": 90},
        "b": {"mean": 5.0, "spread": 1.0, "runs": 6},
        "b later": {"mean": 2.0, "spread": 1.0, "runs": 90},
        "c": {"mean": 1.0, "spread": 1.0, "runs": 5},
        "failed": {"mean": None, "spread": 0.0, "runs": 5},
    }

    def entry(number, baseline, edit):
        sides = {"baseline": baseline, "edit": edit}
        begun = {side: {"key": name[0]} for side, name in sides.items()}
        return Entry(
            number, begun, {"summaries": {side: runs[name] for side, name in sides.items()}}
        )

    entries = [entry(0, "a", "b"), entry(1, "b", "failed"), entry(2, "b later", "c")]
    expected = expected_gains(entries)
    assert expected == pytest.approx({0: 2, 2: -1}, abs=0.3)
    assert expected_gains(entries[:2]) == {}


def test_a_baseline_with_other_versions_is_measured_again(tmp_path, monkeypatch):
    from autorl.study.judging import runs

    words = ("--study", str(study_file(tmp_path)), "--ledger", str(tmp_path / "ledger"))
    judge("default", "x=0.0", *words, "--pool", "5", code=1)
    real = runs.session
    monkeypatch.setattr(runs, "session", lambda *of: {**real(*of), "python": "9.9"})
    answer = judge("x=0.01", *words, code=1)
    assert answer["notes"] == ["the baseline is measured again with other Python"]
    assert answer["trained_now"] >= 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "expected A and B"),
        (["a", "b"], "for a revision or a configuration give --study or --run"),
        (["none", "HEAD", "--run", RUN], "no revision"),
        (["HEAD", "HEAD", "--run", RUN], "same code and configuration"),
        (["HEAD~1", "HEAD", "--run", RUN, "--max-runs", "1"], "of at least 2"),
        (["HEAD~1", "HEAD", "--run", RUN, "--pool", "5"], "is for a ledger"),
        (["HEAD~1", "HEAD", "--run", RUN, "--metric", "loss"], "loss"),
        (["HEAD", "--ledger", "new", "--run", RUN], "begins with a baseline"),
    ],
)
def test_an_error_has_a_code_of_its_own_and_one_line(repository, words, message):
    done = autorl("judge", *words, code=3)
    assert message in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")


def test_noise_says_what_can_be_seen(tmp_path):
    words = ("default", "--study", str(study_file(tmp_path)), "--out", str(tmp_path / "out"))
    done = json.loads(autorl("noise", *words, "--runs", "8", "--json").stdout)
    assert done["smallest_gain"]["1"] > done["smallest_gain"]["50"] > 0
    found = [plan["found"] for plan in done["verdicts"]]
    assert found == sorted(found)
    assert "over 8 tuning seeds" in autorl("noise", *words, "--runs", "8").stdout
