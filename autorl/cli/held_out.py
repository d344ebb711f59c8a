"""The command test: the incumbent trained on held-out seeds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, Quiet, Workers, print_json, say
from autorl.cli.progress import Way
from autorl.cli.run import drive, run_study
from autorl.core.types import InputError, StudyError
from autorl.report.text import result_dict, schedule_text
from autorl.store.outputs import free_output, write_output
from autorl.study import Study
from autorl.study.results.estimates import BLOCK, told_apart
from autorl.study.results.replay import retrain, same, schedule_study

WORDS = {
    "larger": "better than the default",
    "smaller": "worse than the default",
    "equal": "not told apart from the default",
}


def on_test_seeds(
    folder: Folder,
    seeds: Annotated[int | None, typer.Option(min=1)] = None,
    schedule: bool = False,
    write: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    own_seeds: bool = False,
    until_decided: bool = False,
    max_seeds: Annotated[int, typer.Option(min=5)] = 50,
    replace: bool = False,
    workers: Workers = None,
    trust: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train the incumbent so far on held-out seeds.

    From step 0 on, every change of configuration of a population-based optimizer's incumbent is
    made again at the same step. This ends the search where it is (`autorl resume --runs +N` opens
    it again); a study whose search is over and whose candidates are tested is tested on more seeds
    with --seeds.

    Options:
        seeds: Bring the number of test seeds to N.
        schedule: Print the incumbent's changes beside the population's best.
        write: Write the schedule as a study file that trains it.
        own_seeds: Also train its tuning seeds again; compare with the record, to the last bit.
        until_decided: Add test seeds, five at a time, until incumbent and default are told apart.
        max_seeds: Stop undecided at N test seeds, a multiple of five.
    """
    place = None if write is None else free_output(write, (".yaml", ".yml"), replace=replace)
    way = Way(workers, as_json, quiet)
    with closing(Study.open(folder, trust=trust)) as study:
        if seeds is not None and seeds != len(study.spec.plan.seeds("test")):
            study.add_test_seeds(seeds)
        if until_decided:
            _until_decided(study, way, max_seeds)
            return
        if not schedule and place is None and not own_seeds:
            drive(study, way, search=False)
            return
        result = run_study(study, way, search=False)
        if place is not None:
            # Before the seeds are trained again, which may take hours.
            write_output(place, schedule_study(study.spec, study.result().incumbent.schedule))
        differing = _differing(study) if own_seeds else None
        # The best of all agents, copies included: a population's own report would show it.
        best = study.driver.best_score(result.incumbent.until)
    if as_json:
        document = result_dict(result)
        if differing is not None:
            document["own_seeds"] = {"reproduced": not differing}
        print_json(document)
    else:
        say(schedule_text(result, best))
        # An empty list, not None: None means that --own-seeds was not given.
        if differing == []:
            say("  own seeds: the recorded curves are reproduced to the last bit")
    if result.problem:
        raise StudyError(f"{folder}: {result.problem}")
    if differing:
        seeds_text = ", ".join(map(str, differing))
        raise StudyError(f"{folder}: seeds {seeds_text} give other curves than those recorded")


def _until_decided(study: Study, way: Way, most: int) -> None:
    """Add test seeds until incumbent and default are told apart."""
    have = len(study.spec.plan.seeds("test"))
    if most % BLOCK or most < have:
        raise InputError(
            f"expected a multiple of {BLOCK}, at least the {have} seeds there are, got {most}",
            key="--max-seeds",
        )
    if have % BLOCK:
        study.add_test_seeds(have + BLOCK - have % BLOCK)
    verdict = None
    while verdict is None:
        result = run_study(study, way, search=False)
        if result.default is None or result.difference is None:
            raise InputError(
                "compares the incumbent with the default configuration, trained as far: this study "
                "did not test it, or it is the incumbent",
                key="--until-decided",
            )
        test = told_apart(study.spec, result.entries[0], result.default, most)
        if test.needs:
            study.add_test_seeds(len(study.spec.plan.seeds("test")) + BLOCK)
        else:
            verdict = test.verdicts["first", "second"]
    looks = BLOCK * len(test.thresholds)
    if way.as_json:
        print_json(result_dict(result) | {"decided": {"incumbent": WORDS[verdict], "seeds": looks}})
        return
    drive(study, way, search=False)
    say(
        f"  until decided: the incumbent is {WORDS[verdict]} by {looks} test seeds "
        f"(a look every {BLOCK}, at most {most}; 5 % error over all looks)"
    )


def _differing(study: Study) -> list[int]:
    """List the tuning seeds on which the incumbent, trained again, differs."""
    best = study.result().incumbent.proposal
    driver = study.driver
    curves = retrain(study.spec, driver.lineage, study.load, best, driver.tuning_seeds(best))
    return [
        seed for seed, curve in curves.items() if not same(curve, driver.work.curve(best, seed))
    ]
