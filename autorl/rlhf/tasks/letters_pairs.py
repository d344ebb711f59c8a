"""`letters-pairs`: the letters again, learnt from noisy preference pairs alone.

The trap here is the usual measure of such training, the accuracy on held-out pairs: a policy that
has collapsed to a few letters ranks pairs as well as the best one. Gold is measured on what a
policy writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autorl.rlhf.tasks.letters import GoldProxy


class LettersPairs(GoldProxy):
    """The task `letters-pairs`, described in the module.

    Options:
        pairs: comparisons drawn for training; ties by gold are left out, about one in ten.
        flips: share of them that is labelled the wrong way; held-out pairs are labelled right.
    """

    name = "letters-pairs"
    options: Mapping[str, Any] = MappingProxyType({"pairs": 600, "flips": 0.2})


PAIRS = LettersPairs()
