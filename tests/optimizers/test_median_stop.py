"""The median stopping rule: where runs are cut, which are stopped, and what the optimizer inside sees."""

import numpy as np
import pytest
from growth_exponent import exponent
from plain_median import PlainMedianStop

from autorl.core.types import Done, Failed, Proposed, Scored, Status, Wait
from autorl.optimizers import make
from autorl.optimizers.asha import ASHA
from autorl.optimizers.hyperband import may_go_on, merit
from autorl.testing.optimizers import space_of
from autorl.testing.simulation import simulate

SPACE = space_of("continuous")


# -- ties, counts and the values of a rung --------------------------------------------------------


STATUSES = (Status.CRASH, Status.DIVERGED, Status.LOST)


class PlainASHA(ASHA):
    """Looks through the whole of a rung for the run it is about, and sorts it again."""

    def _promotable(self, rung):
        ranked = sorted(self._ranked[rung])
        best = min(self._waiting[rung], default=None)
        if best is None or ranked.index(best) >= self._runs[rung] // self.options.eta:
            return None
        return self.history[best[-1]]

    def _observe(self, event):
        if isinstance(event, Proposed):
            parent = event.proposal.resume_from
            if parent is None:
                self._started += 1
            else:
                self._waiting[event.proposal.meta["rung"] - 1].remove(self._merits[parent])
            return
        record = self.history[event.proposal]
        rung, old = record.proposal.meta["rung"], self._merits.get(record.id)
        new = merit(record) if may_go_on(record) else None
        self._runs[rung] += record.id not in self._merits
        self._merits[record.id] = new
        for ranks in (self._waiting[rung], self._ranked[rung]):
            if old is None or old in ranks:
                if old is not None:
                    ranks.remove(old)
                ranks += [] if new is None else [new]


def median(against="averages", peers=2, grace=0, *, plain=False, horizon=100):
    options = {"rungs": 4, "peers": peers, "grace": grace, "against": against}
    made = make("random", SPACE, horizon=horizon, stop="median", **options)
    return PlainMedianStop(made.problem, made.options, made.inner) if plain else made


def asha(*, plain=False, horizon=100):
    made = make("asha", SPACE, horizon=horizon)
    return PlainASHA(made.problem, made.options) if plain else made


def random_history(optimizer, twin, seed, asks=150):
    """Both are told the same: scores with ties, failures, runs that stopped themselves, and later scores of seeds."""
    rng, told, waiting = np.random.default_rng(seed), [], []
    for number in range(asks):
        while True:
            answers = [
                each.ask(np.random.default_rng([seed, number])) for each in (optimizer, twin)
            ]
            assert answers[0] == answers[1]
            assert sorted(optimizer.keeps()) == sorted(twin.keeps())
            if hasattr(twin, "inner"):
                assert [*optimizer.inner.history] == [*twin.inner.history]
            if not isinstance(answers[0], Wait) and len(waiting) < rng.integers(1, 6):
                break
            tell(optimizer, twin, waiting.pop(int(rng.integers(len(waiting)))), rng, told)
        for each in (optimizer, twin):
            each.observe(Proposed(number, answers[0]))
        waiting.append((number, answers[0]))
        if told and rng.random() < 0.2:
            tell(optimizer, twin, told[int(rng.integers(len(told)))], rng, [])
    return told


def tell(optimizer, twin, proposed, rng, told):
    number, proposal = proposed
    if rng.random() < 0.08:
        event = Failed(number, STATUSES[rng.integers(3)], (-9.0,))
    else:
        reached = proposal.until if rng.random() < 0.95 else proposal.until - 1
        values = (float(rng.integers(-8, 8)) / 8,)
        event = Scored(number, values, reached=reached, resumable=bool(rng.random() < 0.95))
        told.append(proposed)
    for each in (optimizer, twin):
        each.observe(event)


@pytest.mark.parametrize(
    "options", [("averages", 2, 0), ("scores", 2, 0), ("averages", 3, 1), ("scores", 1, 2)]
)
@pytest.mark.parametrize("seed", range(4))
def test_the_median_rule_decides_as_its_plain_form_does(options, seed):
    random_history(median(*options), median(*options, plain=True), seed)


def test_it_waits_for_runs_that_may_go_on_and_is_done_when_all_are():
    optimizer = make("grid", SPACE, horizon=100, stop="median", rungs=2, levels=1)
    for number in range(2):
        optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
    assert optimizer.ask(np.random.default_rng(2)) == Wait(), "done inside is not done here"
    for number in range(2):
        optimizer.observe(Failed(number, Status.CRASH, ()))
    assert optimizer.ask(np.random.default_rng(2)) == Done()


@pytest.mark.parametrize("seed", range(6))
def test_asha_decides_as_its_plain_form_does(seed):
    random_history(asha(), asha(plain=True), seed)


@pytest.mark.parametrize("factory", [median, lambda: median("scores"), asha])
def test_the_cost_of_a_study_is_linear_in_its_runs(factory):
    def play(runs):
        rng = np.random.default_rng(0)
        simulate(factory, lambda number, proposal: float(rng.random()), runs)

    assert exponent(play, 400) < 1.1
