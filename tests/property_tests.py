"""How many examples a property test draws."""

import os


def examples(number):
    """`number` of them where they are new, a quarter where they are the same every time."""
    new = os.environ.get("AUTORL_HYPOTHESIS") == "random"
    return number if new else number // 4
