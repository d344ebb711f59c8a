"""The command replay: the winning schedule trained again, from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, Quiet, Workers, print_json, say
from autorl.cli.run import run_study
from autorl.report.schedule import schedule_text
from autorl.report.text import result_dict
from autorl.study import Study
from autorl.study.replay import retrain, same, schedule_study
from autorl.types import InputError, StudyError


def replay(
    folder: Folder,
    own_seeds: Annotated[
        bool,
        typer.Option(
            "--own-seeds",
            help="Also on its tuning seeds; compare with the record, to the last bit.",
        ),
    ] = False,
    schedule: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the schedule as a study file that trains it."),
    ] = None,
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Retrain the incumbent's schedule on the test seeds.

    From step 0 on, every change of configuration of a population-based optimizer's incumbent is
    made again at the same step. The score on held-out seeds stands beside that of the population's
    best member. Ends the search, like `autorl test`.
    """
    study = Study.open(folder)
    try:
        result = run_study(study, workers=workers, search=False, as_json=as_json, quiet=quiet)
        if schedule is not None:
            # Before the seeds are trained again, which may take hours.
            text = schedule_study(study.spec, study.result().incumbent.schedule)
            try:
                schedule.write_text(text, encoding="utf-8")
            except OSError as error:
                message = f"cannot be written ({error.strerror})"
                raise InputError(message, file=str(schedule)) from error
        differing = _differing(study) if own_seeds else None
        # Of any agent, those that copied others too: what a population's own report would show.
        best = study.driver.best_score(result.incumbent.until)
    finally:
        study.close()
    if as_json:
        document = result_dict(result)
        if differing is not None:
            document["own_seeds"] = {"reproduced": not differing}
        print_json(document)
    else:
        say(schedule_text(result, best))
        # Not where it is None: then nobody asked.
        if differing == []:
            say("  own seeds: the recorded curves are reproduced to the last bit")
    if result.problem:
        raise StudyError(f"{folder}: {result.problem}")
    if differing:
        seeds = ", ".join(map(str, differing))
        raise StudyError(f"{folder}: seeds {seeds} give other curves than those recorded")


def _differing(study: Study) -> list[int]:
    """List the tuning seeds on which the incumbent, trained again, differs."""
    best = study.result().incumbent.proposal
    driver = study.driver
    curves = retrain(study.spec, driver.lineage, study.load, best, driver.tuning_seeds(best))
    return [
        seed for seed, curve in curves.items() if not same(curve, driver.work.curve(best, seed))
    ]
