"""Transfer between environments: by hand, against plain loops, and near the published means."""

import numpy as np
import pytest
from analysis_samples import means, with_data
from scipy.stats import percentileofscore

from autorl.core.types import InputError
from autorl.landscapes.analysis.transfer import best_single, transfer_regret

SCORES = np.array([[0.0, 10.0], [4.0, 6.0], [3.0, 7.0], [1.0, 2.0]])


def test_by_hand():
    found = transfer_regret(SCORES, ["a", "b"])
    assert found.best.tolist() == [1, 0]
    assert found.regret == pytest.approx(np.array([[0.0, 0.5], [1.0, 0.0]]))
    assert found.mean_loss == pytest.approx(0.75)
    single = best_single(SCORES)
    assert single.row == 1  # (1 + 0.5) / 2 against (0.75 + 0.625) / 2
    assert single.losses.tolist() == [0.0, 0.5]
    assert single.mean_loss == pytest.approx(0.25)


def test_against_plain_loops():
    table = np.random.default_rng(0).integers(0, 9, (20, 4)).astype(float)
    found = transfer_regret(table, list("abcd"))
    for source in range(4):
        row = table[:, source].argmax()
        for target in range(4):
            column = table[:, target]
            assert found.regret[source, target] == pytest.approx(
                (column.max() - column[row]) / np.ptp(column)
            )
            expected = percentileofscore(column, column[row], "mean") / 100
            assert found.percentile[source, target] == pytest.approx(expected)
    losses = [np.mean((table.max(axis=0) - row) / np.ptp(table, axis=0)) for row in table]
    assert best_single(table).mean_loss == pytest.approx(min(losses))


def test_choosing_on_other_seeds_is_honest():
    rng = np.random.default_rng(1)
    level = rng.random((50, 3))
    tuning, test = level + 0.6 * rng.normal(size=(50, 3)), level + 0.6 * rng.normal(size=(50, 3))
    honest = transfer_regret(test, list("abc"), chosen_by=tuning)
    assert honest.best.tolist() == tuning.argmax(axis=0).tolist()
    assert (np.diag(honest.regret) >= 0).all()
    assert np.diag(honest.regret).max() > 0
    scaled = (tuning - tuning.min(axis=0)) / np.ptp(tuning, axis=0)
    assert best_single(test, tuning).row == scaled.mean(axis=1).argmax() != best_single(test).row
    assert best_single(test, tuning).mean_loss > best_single(test).mean_loss


def test_mistakes_are_named():
    with pytest.raises(InputError, match="at least two environments"):
        transfer_regret(SCORES, ["a"])
    with pytest.raises(InputError, match="of one shape"):
        transfer_regret(SCORES, ["a", "b"], chosen_by=SCORES[:2])
    with pytest.raises(InputError, match=r"score the same in columns \[1\]"):
        transfer_regret(SCORES * [1, 0], ["a", "b"])


@with_data
def test_published_means_of_the_dqn_landscapes():
    """Published: 0.699 and 0.503, on an earlier run of one of the 13 environments."""
    names, table = means("dqn")
    assert transfer_regret(table, names).mean_loss == pytest.approx(0.699, abs=0.01)
    assert best_single(table).mean_loss == pytest.approx(0.503, abs=0.01)
