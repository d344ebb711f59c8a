"""RLHF on `letters-goldproxy`: PPO against DPO at equal counted tuning budgets; populations against fixed settings.

    python benchmarks/rlhf.py --raw raw.jsonl                      # all parts; writes results/rlhf.md
    python benchmarks/rlhf.py --parts methods --runs 48 --repeats 5

*methods*: `trl/ppo` on the proxy reward against `trl/dpo` on the very pairs the proxy was fitted to (512 drawn from the
reference policy, 20 % of the labels wrong), so both know the same comparisons. Both start from the same reference
policy, are tuned by the same optimizer with as many full runs, and are chosen and judged by the same gold reward on
held-out prompts. Counted, over all tuning runs: optimizer steps, the budget of a study, equal by construction;
sequences in those steps, equal too (a step of PPO learns from 64 completions, a step of DPO from 32 pairs); completions
the policy had to sample (PPO: 64 for each batch, used in 1 to 4 steps; DPO: none); and tokens, of sampled completions
(PPO) or of prompts and completions read (DPO). Evaluations are the same for both and not counted.

*pbt*: a population that changes learning rate and beta of RLOO while it trains, against the best of as many fixed
configurations, in equal optimizer steps. What a population trains again in the end is within its steps.

*landscape*: the shipped landscape of RLOO, see `rlhf_landscape.py`; nothing is trained.

The unit of the first two is a study: another repeat has another study seed, other tuning seeds and other test seeds,
shared by what is compared. Its value is the mean gold of its incumbent on test seeds; intervals are 95 % bootstrap
intervals over test seeds, drawn within each repeat, those of differences paired by seed. They say nothing of other
searches: for that, the rows of the repeats stand beside them. Finished studies are kept in `--raw` by the version of
the code that ran them and taken up again by that version alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import rlhf_landscape
from asking import count as count_informed
from cells import Cell, Raw, code_version, timed
from comparisons import Share, Summary, label, share
from optimizers_live import FIRST_TEST_SEED, finished

HERE = Path(__file__).parent
TASK: Mapping[str, Any] = {
    "id": "letters-goldproxy",
    "kwargs": {"instance": 0, "pairs": 512, "flips": 0.2},
}
METHODS, PBT = ("trl/ppo", "trl/dpo"), ("pbt", "random")
PARTS = {"methods": METHODS, "pbt": PBT, "landscape": ()}
SIZES = {  # of a study, unless the options say otherwise
    "methods": {"runs": 24, "steps": 48, "evaluations": 4, "tuning": 3, "tests": 10},
    "pbt": {"runs": 16, "steps": 48, "evaluations": 6, "tuning": 2, "tests": 6},
}
SEQUENCES = 64  # of an optimizer step
BATCHES = {
    "trl/ppo": ("batch_size", 64),
    "trl/dpo": ("per_device_train_batch_size", 32),
}  # of 64 sequences each
FIXED = {"num_generations": 4, "per_device_train_batch_size": 64}  # of the population's RLOO


def space(part: str, method: str) -> dict[str, Any]:
    """The search space of a study: that of the method with its batch, or learning rate and beta alone."""
    from autorl.space import load_space

    if part == "pbt":
        found = load_space("trl/rloo-tiny").to_dict()["hyperparameters"]
        constants = {name: {"type": "constant", "value": value} for name, value in FIXED.items()}
        return {
            "hyperparameters": {name: found[name] for name in ("learning_rate", "beta")} | constants
        }
    found = load_space(f"{method}-tiny").to_dict()
    name, size = BATCHES[method]
    return found | {
        "hyperparameters": found["hyperparameters"] | {name: {"type": "constant", "value": size}}
    }


def sizes(given: argparse.Namespace, part: str) -> dict[str, int]:
    """How large a study of a part is."""
    return {
        name: size if getattr(given, name) is None else getattr(given, name)
        for name, size in SIZES[part].items()
    }


def study(cell: Cell, given: argparse.Namespace) -> dict[str, Any]:
    """The study file of a cell. A population is judged at its last step, and so is what it is compared with."""
    population, size = cell.part == "pbt", sizes(given, cell.part)
    tuning, tests, evaluations = size["tuning"], size["tests"], size["evaluations"]
    optimizer = given.optimizer if not population else {"name": cell.method}
    if cell.method == "pbt":
        optimizer |= {"generations": evaluations}
    return {
        "name": "rlhf",
        "seed": cell.repeat,
        "trainer": {"name": "trl/rloo" if population else cell.method, "kwargs": {"guard": 0}},
        "environment": dict(TASK),
        "space": space(cell.part, cell.method),
        "objective": {"metric": "gold", "reduce": "last" if population else "best"},
        "fidelity": {
            "steps": size["steps"],
            "evaluations": evaluations,
            "episodes": given.episodes,
        },
        "optimizer": optimizer,
        "budget": {"runs": size["runs"]},
        "seeds": {
            "tuning": [tuning * cell.repeat + number for number in range(tuning)],
            "test": [FIRST_TEST_SEED + tests * cell.repeat + number for number in range(tests)],
        },
        "test": {"top": 1},
        "keep": {"checkpoints": "none"},
    }


def measure(document: Mapping[str, Any]) -> dict[str, Any]:
    """Run a study in this process: scores, and what was counted in its tuning runs, as JSON values."""
    with finished(document) as (running, result):
        counted = count(running.store.query) | informed(running.store)
    assert result.test is not None
    return counted | {
        "test": list(result.test.seeds.values()),
        "failed": result.test.failed,
        "tuning": result.tuning,
        "default": None if result.default is None else result.default.test.value,
        "changes": len(result.incumbent.schedule) - 1,
        "beside": dict(result.beside),
        "config": dict(result.incumbent.config),
    }


def informed(store: Any) -> dict[str, int]:
    """How many configurations of a study came from scores."""
    from autorl.store.events import ProposalMade

    events = (recorded.event for recorded in store.events())
    return count_informed(
        event.proposed.proposal for event in events if isinstance(event, ProposalMade)
    )


def count(query: Any) -> dict[str, float]:
    """Optimizer steps of the tuning runs of a study; completions PPO sampled and tokens of runs from scratch."""
    ((steps,),) = query("SELECT SUM(environment_steps) FROM runs WHERE seed_role = 'tuning'")
    rows = query(
        "SELECT r.environment_steps, c.config, MAX(e.value) FROM runs r JOIN configurations c USING (config_id) "
        "JOIN reports e ON e.run_id = r.run_id AND e.metric = 'tokens' WHERE r.seed_role = 'tuning' AND r.start_step = 0 "
        "GROUP BY r.run_id"
    )
    settings = [(own, json.loads(text)) for own, text, _ in rows]
    sampled = sum(
        own * SEQUENCES / config["num_ppo_epochs"]
        for own, config in settings
        if "num_ppo_epochs" in config
    )
    return {"steps": steps, "completions": sampled, "tokens": sum(tokens for *_, tokens in rows)}


def table(raw: Raw, part: str, cells: Sequence[Cell]) -> list[str]:
    """One line for each study of a part."""
    counted = [
        "steps",
        *(["sequences", "completions", "tokens"] if part == "methods" else ["changes"]),
    ]
    default = (
        ["default"] if part == "methods" else []
    )  # in a population it may not have been trained to the end
    heads = [
        "repeat",
        "",
        "by the model",
        "test gold",
        "95 %, test seeds",
        "tuning",
        *default,
        "KL",
        "proxy",
    ]
    heads += [*counted, "CPU-s"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for cell in sorted(cells, key=lambda each: each.repeat):
        found = raw.cells[cell.key]
        numbers = found | {"sequences": found["steps"] * SEQUENCES}
        fields = [
            str(cell.repeat),
            cell.method,
            share([found]).text,
            interval(np.array([found["test"]]).T),
            f"{found['tuning']:.3f}",
        ]
        fields += ["the same" if found[name] is None else f"{found[name]:.3f}" for name in default]
        fields += [f"{found['beside']['kl']:.1f}", f"{found['beside']['proxy']:.2f}"]
        fields += [*(f"{numbers[name]:,.0f}" for name in counted), f"{found['seconds']:.0f}"]
        lines.append(f"| {' | '.join(fields)} |")
    return lines


def interval(scores: Any) -> str:
    """`mean | [low, high]` of scores (test seeds, repeats)."""
    from autorl.statistics import bootstrap_interval

    found = bootstrap_interval(scores, "mean", rng=np.random.default_rng(0))
    return f"{scores.mean():.3f} | [{found.low:.3f}, {found.high:.3f}]"


def together(raw: Raw, part: str, repeats: Sequence[int]) -> list[str]:
    """The methods of a part over all repeats, and what the first is above the second.

    The intervals are over test seeds alone: they say nothing of other searches, so what the repeats say stands beside.
    """
    from autorl.statistics import difference_interval

    scores = {
        method: np.array(
            [raw.cells[Cell(part, TASK["id"], method, number).key]["test"] for number in repeats]
        ).T
        for method in PARTS[part]
    }
    lines = ["| | test gold | 95 %, test seeds of these searches |", "| --- | --- | --- |"]
    lines += [f"| {method} | {interval(values)} |" for method, values in scores.items()]
    one, other = scores.values()
    found = difference_interval(one, other, "mean", rng=np.random.default_rng(0), paired=True)
    gap = Summary(float(one.mean() - other.mean()), found.low, found.high)
    by_repeat = one.mean(axis=0) - other.mean(axis=0)
    lines += [
        "",
        f"{PARTS[part][0]} minus {PARTS[part][1]}: {gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}] over the",
    ]
    lines += [
        f"test seeds of these searches: {gap.verdict}. By repeat: {', '.join(f'{each:+.3f}' for each in by_repeat)};"
    ]
    lines += ["what another search would bring is only in the spread of those."]
    return lines


def report(raw: Raw, given: argparse.Namespace) -> str:
    """The results file."""
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "transformers", "trl", "optuna")
    )
    lines = ["# RLHF: measured", ""]
    lines += [
        "What was run, what is counted and how it is judged: the head of `benchmarks/rlhf.py`, which writes this."
    ]
    lines += [f"Python {platform.python_version()}, {packages}, {os.cpu_count()} cores."]
    if "methods" in given.parts:
        searched = label(given.optimizer, of_part(raw, given, "methods"))
        lines += [
            "",
            f"## PPO on a proxy, DPO on the pairs it was fitted to (tuned by {searched})",
            "",
        ]
        lines += studies(raw, given, "methods")
    if "pbt" in given.parts:
        lines += [
            "",
            "## A population that changes learning rate and beta, and fixed ones (RLOO)",
            "",
        ]
        lines += studies(raw, given, "pbt")
    if "landscape" in given.parts:
        lines += [
            "",
            f"## Over-optimisation in the landscape {rlhf_landscape.LANDSCAPE}",
            "",
            *rlhf_landscape.fits(),
        ]
        lines += ["", "## Random search on that landscape", "", *rlhf_landscape.random_search()]
    return "\n".join(lines) + "\n"


def of_part(raw: Raw, given: argparse.Namespace, part: str) -> Share:
    """How many configurations of a part's finished studies came from scores."""
    cells = [raw.cells[cell.key] for cell in wanted(given) if cell.part == part and cell in raw]
    return share(cells) if cells else Share(0.0, 0.0)


def studies(raw: Raw, given: argparse.Namespace, part: str) -> list[str]:
    """A part that trains: its size, its methods together, every study of the repeats that are whole."""
    cells = [cell for cell in wanted(given) if cell.part == part]
    whole = {cell.repeat for cell in cells} - {cell.repeat for cell in cells if cell not in raw}
    if not whole:
        return ["Not measured."]
    cells = [cell for cell in cells if cell.repeat in whole]
    reference = np.mean([raw.cells[cell.key]["beside"]["reference_gold"] for cell in cells])
    size = sizes(given, part)
    lines = [
        f"{size['runs']} full runs of {size['steps']} optimizer steps a study, over {size['tuning']} tuning seeds; "
        f"{size['tests']} test seeds, {size['evaluations']} evaluations of {given.episodes} prompts.",
        f"The reference policy has gold {reference:.3f} on the prompts of the tests.",
    ]
    return [*lines, "", *together(raw, part, sorted(whole)), "", *table(raw, part, cells)]


def wanted(given: argparse.Namespace) -> list[Cell]:
    """Every study, repeat by repeat."""
    repeats = range(given.repeats)
    task = TASK["id"]
    return [
        Cell(part, task, method, repeat)
        for repeat in repeats
        for part in given.parts
        for method in PARTS[part]
    ]


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--optimizer", default="tpe", help="of the methods")
    parser.add_argument("--runs", type=int, help="full runs of a study, over all tuning seeds")
    parser.add_argument("--steps", type=int, help="optimizer steps of a full run")
    parser.add_argument(
        "--evaluations", type=int, help="of a run; a population has as many generations"
    )
    parser.add_argument("--tuning", type=int, help="tuning seeds")
    parser.add_argument("--tests", type=int, help="test seeds")
    parser.add_argument("--episodes", type=int, default=256, help="prompts of an evaluation")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--raw", type=Path, help="JSON file of finished studies: read, and written after each"
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="only print the CPU time of the studies that are missing",
    )
    parser.add_argument(
        "--partial", action="store_true", help="only report on the whole repeats --raw has"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "rlhf.md")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(arguments)
    os.environ |= {"OMP_NUM_THREADS": "1"}
    raw = Raw(given.raw, code_version("asking", "optimizers_live", "rlhf"))
    print(f"code {raw.code}: {raw.estimate(wanted(given))}", flush=True)
    if given.estimate:
        return
    todo = [cell for cell in wanted(given) if cell not in raw and not given.partial]
    for number, cell in enumerate(todo, 1):
        raw.keep(cell, timed(partial(measure, study(cell, given))))
        print(f"{time.strftime('%H:%M:%S')} {number}/{len(todo)} {cell.key}", flush=True)
    text = report(raw, given)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
