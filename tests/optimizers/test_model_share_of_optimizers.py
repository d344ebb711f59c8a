"""How much of a search is its model's: what is counted, worded and warned of."""

import pytest

from autorl.core.types import Config, Continue, Proposal
from autorl.optimizers.model_share import (
    ModelShare,
    model_share,
    share_caution,
    share_dict,
    share_text,
)


def proposal(x, *, informed=False, **more):
    return Proposal(Config(x=x), 10, informed=informed, **more)


def test_new_configurations_are_counted_once_and_the_baseline_not():
    share = model_share(
        [
            proposal(0.0, baseline=True),
            proposal(0.1),
            proposal(0.2, informed=True),
            proposal(0.2, informed=True, parent=Continue(2)),
            proposal(0.3, informed=True),
            proposal(0.1, informed=True),
        ]
    )
    assert share == ModelShare(new=3, modelled=2, continued=2)
    assert share.share == pytest.approx(2 / 3)
    assert model_share([]) == ModelShare(0, 0, 0)
    assert ModelShare(0, 0, 0).share == 0.0


def test_the_counts_in_words():
    share = ModelShare(16, 12, 8)
    text = "16 new configurations (12 by the model, 4 of the start-up), 8 promoted or continued"
    assert share_text(share, learns=True) == text
    assert share_text(ModelShare(16, 0, 0), learns=False) == "16 new configurations"
    assert share_dict(share, learns=True) == {"total": 16, "by_model": 12, "continued": 8}
    assert share_dict(share, learns=False)["by_model"] is None


def test_less_than_half_is_warned_of():
    assert share_caution("tpe", ModelShare(8, 4, 0), learns=True) is None
    assert "only 3 of 8 " in share_caution("tpe", ModelShare(8, 3, 0), learns=True)
    never = "never left its start-up: this is random search"
    assert never in share_caution("tpe", ModelShare(8, 0, 0), learns=True)
    # Its start-up holds configurations of the prior.
    never = "never left its start-up: no score chose a configuration"
    assert never in share_caution("transfer", ModelShare(8, 0, 0), learns=True)
    assert share_caution("random", ModelShare(8, 0, 0), learns=False) is None
    assert share_caution("tpe", ModelShare(0, 0, 0), learns=True) is None
