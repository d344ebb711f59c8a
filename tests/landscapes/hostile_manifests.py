"""Hostile manifests from a fixed seed: a good one with one to three places replaced by what nobody should write.

`python tests/landscapes/hostile_manifests.py 42 20` prints twenty of them.
"""

import copy
import json
import random
import sys

COPY = "COPY (SELECT $$echo pwned$$) TO $$./PWNED.sh$$ (HEADER false, QUOTE $$$$)"
WRONG = (
    None,
    True,
    -1,
    3,
    10**30,
    1e300,
    float("nan"),
    float("-inf"),
    "",
    "x",
    "x" * 5000,
    "../../../../etc/passwd",
    "/etc/passwd",
    "evals/../../../x.parquet",
    "a\x1b]0;title\x07\x1b[2J\u202e",
    "\x00",
    f"'.length()) END AS FLOAT) AS value FROM evals; {COPY}; -- \"",
    f'runs"; {COPY}; --',
    f"0) AS value; {COPY}; --",
    "(SELECT 1)",
    [],
    {},
    [[[[1]]]],
    ["a", 1],
    [2, 1],
    [10**30],
    [None],
    {"x": 1},
    {"tuning": "x"},
    {"name": {"phases": [1]}},
    {"steps": ["a"], "overshoot": "1) OR (1=1", "at": 3, "episodes": []},
    {"configs": "many", "DROP TABLE runs": 1},
    {"evals/../../../x.parquet": "0" * 64},
    {f"runs; {COPY}": 1},
)


def places(value, path=()):
    """Paths of every key and item in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


def replaced(value, path, wrong):
    """A copy of a JSON value with another value at a path."""
    changed = copy.deepcopy(value)
    owner = changed
    for name in path[:-1]:
        owner = owner[name]
    owner[path[-1]] = wrong
    return changed


def hostile_texts(good, seed, count):
    """`count` texts of `manifest.json`; the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        changed = copy.deepcopy(good)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            where = list(places(changed))
            changed = replaced(changed, rng.choice(where), copy.deepcopy(rng.choice(WRONG)))
        text = json.dumps(changed)
        damage = rng.random()
        if damage < 0.05:
            text = text[: rng.randrange(len(text))]
        elif damage < 0.1:
            text = text.replace("{", rng.choice(("[", "{" * 100_000, "{{", '{"a": ', "\\ud800")), 1)
        yield text


if __name__ == "__main__":
    from landscape_samples import manifest

    for line in hostile_texts(manifest().to_dict(), int(sys.argv[1]), int(sys.argv[2])):
        print(line[:2000])
