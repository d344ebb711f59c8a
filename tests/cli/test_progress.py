"""Progress: lines now and then, a bar on a terminal, time left only when it can be said."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from cli_support import study_file

from autorl.cli.progress import Reporter, RuleProgress, duration
from autorl.study import Progress, Study
from autorl.study.spec import load_spec

START = Progress("search", 3, 0, 3, 0, 0.1, None, None, 0.0)


def reporter(stream, times, in_flight=(), hours=None, charged=True):
    """A reporter on a clock that shows `times`; the study has 2 candidates x 5 test seeds, 4 of them done.

    1000 tuning steps are charged; segments (start, until) are `in_flight`, `charged` or not.
    """
    segments = {
        str(key): SimpleNamespace(id=str(key), start=start, until=until)
        for key, (start, until) in enumerate(in_flight)
    }
    study = SimpleNamespace(
        tests=SimpleNamespace(progress=(4, 10)),
        spec=SimpleNamespace(budget=SimpleNamespace(hours=hours)),
        driver=SimpleNamespace(
            charged_steps=1000,
            charges=SimpleNamespace(covers=lambda segment: charged),
            work=SimpleNamespace(in_flight=segments),
        ),
    )
    clock = iter(times)
    return Reporter(study, stream, clock=lambda: next(clock))


def test_a_line_every_few_seconds_and_at_a_change_of_phase():
    stream = io.StringIO()
    with reporter(stream, [0.0, 1.0, 4.9, 5.0, 5.1, 5.2]) as show:
        for progress in (START, START, START, replace(START, best=12.5, best_proposal=2), START):
            show(progress)
        show(replace(START, phase="test"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "search  10% · 0 of about 30 proposals done"
    assert "incumbent 12.5 (tuning, proposal 2)" in lines[1]
    assert lines[2] == "test  40% · 4 of 10 test runs"


@pytest.mark.parametrize(
    ("in_flight", "hours", "share"),
    [
        ([], None, "80%"),
        ([(0, 500), (0, 500)], None, "0%"),
        ([(0, 100), (50, 200)], None, "60%"),
        ([(0, 900), (0, 900)], None, "0%"),
        ([(300, 200)], None, "80%"),
        ([(0, 500), (0, 500)], 2.0, "80%"),
    ],
    ids=["all in", "none in", "a quarter out", "racing", "beyond its end", "hours"],
)
def test_the_share_of_the_search_is_what_was_trained_of_the_budget(in_flight, hours, share):
    stream = io.StringIO()
    with reporter(stream, [0.0], in_flight, hours) as show:
        show(replace(START, budget_used=0.8))
    assert stream.getvalue().split(" · ")[0].split() == ["search", share]


def test_what_runs_uncharged_is_not_taken_off():
    stream = io.StringIO()
    with reporter(stream, [0.0], [(0, 500), (0, 500)], charged=False) as show:
        show(replace(START, budget_used=0.8))
    assert stream.getvalue().split(" · ")[0].split() == ["search", "80%"]


@pytest.mark.parametrize("policy", ["adaptive", "racing"])
def test_the_share_does_not_fall_when_proposals_get_further_seeds(tmp_path, policy):
    """Adaptive studies confirm five explored proposals: 62 % were followed by 25 %."""
    file = study_file(
        tmp_path,
        budget={"runs": 16},
        evaluation={"seeds": policy},
        parallelism=4,
        seeds={"tuning": 5, "test": 2},
    )
    study = Study.in_memory(load_spec(yaml.safe_load(file.read_text())))
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


def test_a_study_whose_budget_is_charged_but_not_trained_is_not_at_100_percent(tmp_path):
    """All 4 proposals are asked for at once; the shares that are shown follow the segments that came back."""
    spec = load_spec(
        yaml.safe_load(study_file(tmp_path, budget={"runs": 8}, parallelism=8).read_text())
    )
    study, stream = Study.in_memory(spec), io.StringIO()
    with Reporter(study, stream, line_seconds=0.0) as show:
        study.run(show)
    study.close()
    shares = [
        line.split(" · ")[0].split()[1]
        for line in stream.getvalue().splitlines()
        if line.startswith("search")
    ]
    assert shares == sorted(shares, key=lambda text: int(text[:-1]))
    assert shares[:2] == ["12%", "25%"]
    assert "88%" in shares


def test_time_left_is_that_of_this_session_and_waits_for_a_tenth():
    stream = io.StringIO()
    with reporter(stream, [0.0, 10.0, 60.0]) as show:
        show(replace(START, budget_used=0.5, seconds=10.0))
        show(replace(START, budget_used=0.59, seconds=20.0))
        show(replace(START, budget_used=0.62, seconds=70.0))
    lines = stream.getvalue().splitlines()
    assert "ends in" not in lines[0] + lines[1]
    assert lines[2].endswith("search ends in about 3 min")


def test_a_terminal_gets_a_bar_with_the_incumbent():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with reporter(stream, []) as show:
        show(replace(START, best=12.5, best_proposal=2))
        show._bar.refresh()
    assert "incumbent 12.5" in stream.getvalue()
    assert "0 of 3 proposals" not in stream.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (240.0, "4 min"), (7200.0, "2.0 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text


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
