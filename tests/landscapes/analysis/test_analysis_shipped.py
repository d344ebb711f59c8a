"""Shipped landscapes answer every question without a network; tests of each analysis hold its numbers."""

import json
import socket

import pytest
from typer.testing import CliRunner

from autorl.cli import app
from autorl.landscapes import list_landscapes, shipped_root

ROOT = shipped_root()
SHIPPED = list_landscapes(ROOT) if ROOT is not None else {}
pytestmark = pytest.mark.skipif(not SHIPPED, reason="no shipped landscapes in this checkout")
PLAIN = "autorl/ppo/CartPole-v1"
PHASES = "autorl-phases/ppo/CartPole-v1"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Any connection is an error."""

    def refuse(*_arguments):
        raise AssertionError("a shipped landscape needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def run(*arguments):
    """A command on a shipped landscape; its standard output as JSON."""
    found = CliRunner().invoke(app, ["landscape", *(str(each) for each in arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_every_question_is_answered(tmp_path):
    pytest.importorskip("sklearn")
    best = run("best", PLAIN)
    curve = run("curve", PLAIN, best["config_id"])
    assert {"seed", "step"} <= set(curve[0])
    assert run("importance", PLAIN)["configurations"] == 256
    assert run("subset", PLAIN.rpartition("/")[0], "--size", 1, "--tolerance", 1000)
    file = tmp_path / "a.png"
    assert run("plot", PLAIN, "curves", "--out", file)["file"] == str(file)
    assert file.read_bytes().startswith(b"\x89PNG")
    found = run("analyse", PHASES, "phases", "--seeds", "tuning")
    assert len(found["ends"]) > 1
