"""`autorl prior` and `autorl prior suggest`: files are built, listed and shown; a portfolio is printed without training."""

import pytest
from cli_support import as_json, autorl

SPACE = "population/dqn"
LANDSCAPES = ("autorl/dqn/CartPole-v1", "autorl/dqn/Acrobot-v1")


@pytest.fixture
def prior_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "priors").mkdir()
    made = as_json("prior", "build", "priors/dqn.json", *LANDSCAPES, "--space", SPACE)
    assert made["tasks"] == list(LANDSCAPES)
    return tmp_path / "priors" / "dqn.json"


def test_a_prior_file_is_built_listed_shown_and_used(prior_file):
    assert prior_file.stat().st_size < 100_000
    listed = as_json("prior", "list")
    assert [entry["algorithm"] for entry in listed if entry["file"] == str(prior_file)] == ["dqn"]
    shown = as_json("prior", "show", prior_file)
    assert len(shown["portfolio"]) == 32
    assert shown["sha256"] == listed[0]["sha256"]
    text = autorl("prior", "show", prior_file).stdout
    assert "autorl/dqn/Acrobot-v1" in text
    arguments = ("prior", "suggest", SPACE, "--env", "MountainCar-v0", "--prior", str(prior_file))
    answer = as_json(*arguments, "--top", "3")
    assert len(answer["portfolio"]) == 3
    scores = [row["score"] for row in answer["portfolio"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.5
    # A configuration with a low mean is in it for the task that the others leave.
    tasks = {row["best_on"] for row in as_json(*arguments)["portfolio"]}
    assert tasks == {"Acrobot-v1", "CartPole-v1"}
    head, *_ = autorl(*arguments).stdout.splitlines()
    assert head.startswith("prior of 2 tasks, 2 of the family classic control: ")


def test_what_is_no_prior_of_the_algorithm_is_refused_with_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = autorl("prior", "suggest", SPACE, "--prior", "autorl/ppo/CartPole-v1", code=2).stderr
    assert "is of the algorithm ppo, this study trains dqn" in other
    absent = autorl("prior", "build", "a.json", "no/such/landscape", "--space", SPACE, code=2)
    assert "no landscape or study 'no/such/landscape'" in absent.stderr
    nothing = autorl("prior", "suggest", "sb3/td3", code=2).stderr
    assert "no landscape of this algorithm was found" in nothing
