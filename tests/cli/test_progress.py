"""Progress: lines now and then, a bar on a terminal, time left only when it can be said."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cli_support import STUDY, autorl, study_file

from autorl.cli import progress as module
from autorl.cli.progress import Reporter, RuleProgress, Way, reporting
from autorl.study import Progress, Study
from autorl.study.spec import load_spec

START = Progress("search", 3, 0, 3, 0, 0.1, None, None, 0.0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def said(*shown, times=(0.0,), in_flight=(), hours=None, charged=True):
    """The lines of a reporter on a clock that shows `times`.

    The study has 2 candidates x 5 test seeds, 4 of them done; 1000 tuning steps are charged;
    segments (start, until) are `in_flight`, `charged` or not.
    """
    segments = {
        str(key): SimpleNamespace(id=str(key), start=start, until=until)
        for key, (start, until) in enumerate(in_flight)
    }
    study = SimpleNamespace(
        tests=SimpleNamespace(progress=(4, 10)),
        spec=SimpleNamespace(budget=SimpleNamespace(measured=hours)),
        driver=SimpleNamespace(
            charges=SimpleNamespace(covers=lambda segment: charged, steps=1000),
            work=SimpleNamespace(in_flight=segments),
        ),
    )
    stream, clock = io.StringIO(), iter(times)
    show = Reporter(study, stream, clock=lambda: next(clock))
    for progress in shown:
        show(progress)
    return stream.getvalue().splitlines()


def test_a_line_every_few_seconds_and_at_a_change_of_phase():
    best = replace(START, best=12.5, best_proposal=2)
    shown = (START, START, START, best, START, replace(START, phase="test"))
    lines = said(*shown, times=[0.0, 1.0, 4.9, 5.0, 5.1, 5.2])
    assert len(lines) == 3
    assert lines[0] == "search  10% · 0 of about 30 proposals done"
    assert "incumbent 12.5 (tuning, proposal 2)" in lines[1]
    assert lines[2] == "test  40% · 4 of 10 test runs"


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({}, "80%"),
        ({"in_flight": [(0, 500), (0, 500)]}, "0%"),
        ({"in_flight": [(0, 100), (50, 200)]}, "60%"),
        ({"in_flight": [(0, 900), (0, 900)]}, "0%"),
        ({"in_flight": [(300, 200)]}, "80%"),
        ({"in_flight": [(0, 500), (0, 500)], "hours": 2.0}, "80%"),
        ({"in_flight": [(0, 500), (0, 500)], "charged": False}, "80%"),
    ],
    ids=[
        *("all in", "none in", "a quarter out", "racing", "beyond its end"),
        *("hours", "uncharged"),
    ],
)
def test_the_share_of_the_search_is_what_was_trained_of_the_budget(options, share):
    (line,) = said(replace(START, budget_used=0.8), **options)
    assert line.split(" · ")[0].split() == ["search", share]


@pytest.mark.parametrize("policy", ["adaptive", "racing"])
def test_the_share_does_not_fall_when_proposals_get_further_seeds(policy):
    """Adaptive studies confirm five explored proposals: 62 % were followed by 25 %."""
    more = {"evaluation": {"seeds": policy}, "seeds": {"tuning": 5, "test": 2}, "parallelism": 4}
    study = Study.in_memory(load_spec(STUDY | more))
    shares = []
    reporter = Reporter(study, io.StringIO())

    def show(progress):
        if progress.phase == "search":
            shares.append(reporter._share(progress)[0])
            assert shares[-1] < 1.0 or not progress.running

    study.run(show)
    further = [len(seeds) for seeds in study.driver._seeds_of.values()]
    study.close()
    assert len(set(further)) > 1
    assert shares == sorted(shares)


def test_a_study_whose_budget_is_charged_but_not_trained_is_not_at_100_percent():
    """All 4 proposals are asked for at once; shares follow the segments that came back."""
    study = Study.in_memory(load_spec(STUDY | {"budget": {"runs": 8}, "parallelism": 8}))
    stream = io.StringIO()
    study.run(Reporter(study, stream, line_seconds=0.0))
    study.close()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("search")]
    shares = [line.split(" · ")[0].split()[1] for line in lines]
    assert shares == sorted(shares, key=lambda text: int(text[:-1]))
    assert shares[:2] == ["12%", "25%"]
    assert "88%" in shares


def test_time_left_is_that_of_this_session_and_waits_for_a_tenth():
    used = [(0.5, 10.0), (0.59, 20.0), (0.62, 70.0)]
    shown = [replace(START, budget_used=share, seconds=seconds) for share, seconds in used]
    lines = said(*shown, times=[0.0, 10.0, 60.0])
    assert "ends in" not in lines[0] + lines[1]
    assert lines[2].endswith("search ends in about 3 min")


def test_a_terminal_gets_a_bar_for_each_study(monkeypatch):
    stream, bars, made = Terminal(), [], module._bar
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr(module, "_bar", lambda to: bars.append(made(to)) or bars[-1])
    studies = {Study.in_memory(load_spec(STUDY)): name for name in ("first", "second")}
    with reporting(studies, Way()) as show:
        for study in studies:
            show(study, replace(START, best=12.5, best_proposal=2))
        bars[0].refresh()
        assert [task.description for task in bars[0].tasks] == ["first: search", "second: search"]
    for study in studies:
        study.close()
    assert "incumbent 12.5" in stream.getvalue()
    assert "0 of 3 proposals" not in stream.getvalue()


def test_ctrl_c_says_how_all_of_them_go_on(tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Reporter, "__call__", interrupted)
    names = ("first", "second")
    files = [study_file(tmp_path, f"{name}.yaml", name=name) for name in names]
    stopped = autorl("tune", *files, code=130).stderr
    folders = " ".join(str(tmp_path / "studies" / name) for name in names)
    assert f"go on with `autorl resume {folders}`" in stopped


def test_validation_names_the_rule_it_looks_at_now_and_then():
    stream, now = io.StringIO(), [0.0]
    shown = RuleProgress(2, stream, line_seconds=5, clock=lambda: now[0])
    for second, (landscape, rule) in enumerate(
        [("a", "typed_columns"), ("a", "counted_steps"), ("b", "typed_columns")]
    ):
        now[0] = 3.0 * second
        shown(landscape, rule)
    shown.clear()
    assert stream.getvalue() == "2 of 2: b: typed columns\n"
