"""The commands tune, resume and test, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from autorl.cli.options import (
    AsJson,
    Quiet,
    Storage,
    Workers,
    print_answer,
    print_json,
    say,
    say_line,
)
from autorl.cli.progress import Way, reporting
from autorl.cli.together import is_folder_of_studies, open_studies, read_studies, sources_of
from autorl.core.plain_text import counted
from autorl.core.signals import exit_code, reason
from autorl.core.types import InputError, SearchEnd, StudyError
from autorl.report.configurations import configuration_rows, counts_text
from autorl.report.plan import cautions_before, make_plan
from autorl.report.plan_text import plan_dict, plan_text
from autorl.report.status import unspent
from autorl.report.text import result_dict, result_text
from autorl.store.remote import storage_url
from autorl.study import Result, Study
from autorl.study.folder.opening import create_anew, refuse_existing, study_folder
from autorl.study.results.record import StudyRecord
from autorl.study.session import changes_by_now
from autorl.study.several_studies import Ended, run_together, shared_workers
from autorl.study.spec import Spec, parse_override
from autorl.study.tuner import read_study

STUDIES = Path("studies")


def tune(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|SPACE")],
    env: str | None = None,
    optimizer: str | None = None,
    runs: float | None = None,
    steps: float | None = None,
    out: Path | None = None,
    workers: Workers = None,
    storage: Storage = None,
    seed: int | None = None,
    note: str | None = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    dry_run: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Search on tuning seeds, then test on held-out seeds.

    FILE is a study file. SPACE is a search space that comes with the package or lies in
    ./search_spaces: its trainer has the same name, without a -suffix. Several run at once and share
    the workers; each has the table that it would have alone.

    Options:
        sources: Study files, folders of them, or search spaces such as sb3/ppo-small.
        env: Environment id, or module:Env-v0.
        optimizer: Optimizer, with its default options; `autorl list optimizers` lists them.
        runs: Budget in full runs over all tuning seeds (a space alone: 96).
        steps: Steps of a full run (a space alone: 100000; 1000000 on the tasks of a package such as
            Box2D or MuJoCo).
        out: Folder of the study; default studies/<name>. Several lie in it.
        seed: Seed of the study.
        note: Text that `watch`, `best` and the report show.
        settings: Any key of the study file: --set fidelity.episodes=8.
        dry_run: Say what would be run; write nothing.
    """
    changes = {
        "environment.id": env,
        "optimizer": optimizer,
        "budget": None if runs is None else {"runs": runs},
        "fidelity.steps": steps,
        "executor.workers": workers,
        "storage": None if storage is None else storage_url(storage, Path.cwd()),
        "seed": seed,
        "note": note,
    }
    # None: not on the command line, so that what the file says stands.
    overrides = {key: value for key, value in changes.items() if value is not None}
    # `--set` comes last: it wins over options with names of their own.
    overrides |= overrides_of(settings)
    several = len(sources) > 1 or is_folder_of_studies(sources[0])
    if several:
        specs = read_studies(sources_of(sources), overrides)
        folders = [(out or STUDIES) / spec.name for spec in specs]
    else:
        specs = [read_study(sources[0], overrides)]
        folders = [out or STUDIES / specs[0].name]
    if dry_run:
        print_plans(specs, folders if several else None, as_json=as_json)
        return
    studies = _begun(specs, folders)
    for spec in () if quiet else specs:
        for text in cautions_before(spec):
            say_line(f"caution: {f'{spec.name}: ' if several else ''}{text}", err=True)
    # Alone, a study has had its workers set in its file.
    way = Way(workers if several else None, as_json, quiet)
    if several:
        drive_together(studies, way)
        return
    with closing(studies[0]) as study:
        drive(study, way)


def resume(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR")],
    runs: Annotated[str | None, typer.Option(metavar="+N")] = None,
    workers: Workers = None,
    storage: Storage = None,
    trust: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with an interrupted study, or extend one that is over.

    It goes on from the last recorded segment, however it was stopped, and ends with the same table.
    With --storage the folder is made from a study's storage where it is not there yet, on any
    machine. Several studies go on at once and share the workers.

    Options:
        folders: The study's folder, or several.
        runs: Add N full runs (or configurations) to the budget, also without the +.
    """
    way = Way(workers, as_json, quiet)
    more: float | None = None
    if runs is not None:
        try:
            more = float(runs.removeprefix("+"))
        except ValueError:
            message = f"expected a number such as +64, got {runs!r}"
            raise InputError(message, key="--runs") from None
    if len(folders) > 1:
        if storage is not None:
            message = "expected one study: take them over one after another"
            raise InputError(message, key="--storage")
        if more is not None:
            # Added one after another, what was refused in the last would stay added to the first.
            message = "expected one study to extend: extend them one after another"
            raise InputError(message, key="--runs")
        studies = open_studies(folders, trust=trust)
        for study in studies:
            _say_how_it_stands(study, f"{study.store.folder}: ")
        drive_together(studies, way)
        return
    if storage is not None:
        study_folder(storage_url(storage, Path.cwd()), folders[0])
    with closing(Study.open(folders[0], trust=trust)) as study:
        if more is None:
            _say_how_it_stands(study)
        else:
            study.extend(more)
        drive(study, way, more=more)


def _say_how_it_stands(study: Study, name: str = "") -> None:
    """Print the state of a study that goes on."""
    unused = unspent(study.spec, study.driver.search_end, study.driver.budget.spent)
    if unused:
        # Candidates that are frozen stay so: without more budget there is nothing to resume.
        say_line(f"autorl: {name}{unused}", err=True)


def overrides_of(settings: list[str] | None) -> dict[str, Any]:
    """Read KEY=VALUE options as values of the study file by dotted key.

    Raises:
        InputError: one is no KEY=VALUE, or a key is given twice.
    """
    values: dict[str, Any] = {}
    for key, value in map(parse_override, settings or []):
        if key in values:
            raise InputError("is given twice", file="--set", key=key)
        values[key] = value
    return values


def _begun(specs: Sequence[Spec], folders: Sequence[Path]) -> list[Study]:
    """Begin studies, all of them or none."""
    for folder in folders if len(folders) > 1 else ():
        refuse_existing(folder)
    with ExitStack() as begun:
        studies = []
        for spec, folder in zip(specs, folders, strict=True):
            study, aside = create_anew(spec, folder)
            studies.append(begun.enter_context(closing(study)))
            if aside is not None:
                say_line(f"autorl: {folder}: no run had ended well, moved to {aside}", err=True)
        begun.pop_all()
    return studies


def print_plans(
    specs: Sequence[Spec], folders: Sequence[Path] | None = None, *, as_json: bool
) -> None:
    """Print what `--dry-run` says, of several studies with their folders."""
    plans = [make_plan(spec) for spec in specs]
    texts = [plan_text(plan) for plan in plans]
    documents = [plan_dict(plan) for plan in plans]
    if folders is None:
        print_answer(texts[0], documents[0], as_json=as_json)
        return
    lines = [f"== {place}\n{text}\n" for place, text in zip(folders, texts, strict=True)]
    share = counted(shared_workers(specs), "worker")
    studies = counted(len(specs), "study")
    lines.append(f"{studies} share {share}, in turns; each has the table it has alone")
    print_answer("\n".join(lines), documents, as_json=as_json)


def drive_together(studies: Sequence[Study], way: Way) -> None:
    """Run several studies to their ends, print their results and close them.

    Ctrl-C, SIGTERM and SIGHUP stop all of them, as `drive` says.

    Raises:
        StudyError: one of them has no usable result; the others have theirs.
    """
    names = {study: study.spec.name for study in studies}
    if len(set(names.values())) < len(studies):
        names = {study: str(study.store.folder) for study in studies}
    try:
        for study in studies:
            _say_changes(study, f"{names[study]}: ")
        with reporting(names, way) as progress:
            ends = run_together(studies, way.workers, progress)
        _print_ends(ends, as_json=way.as_json)
        failed = [str(ended.study.store.folder) for ended in ends if _problem_of(ended)]
        if failed:
            raise StudyError(
                f"{len(failed)} of {len(ends)} studies failed: {', '.join(failed)}; "
                "`autorl watch --once` says why"
            )
    except KeyboardInterrupt as error:
        folders = [str(study.store.folder) for study in studies if not study.over]
        raise stopped(error, f"go on with `autorl resume {' '.join(folders)}`") from None
    finally:
        for study in studies:
            study.close()


def _problem_of(ended: Ended) -> str:
    """Say why a study has no usable result, if it has none."""
    return str(ended.error) if ended.result is None else ended.result.problem


def _print_ends(ends: Sequence[Ended], *, as_json: bool) -> None:
    """Print the result of each study, or what ended it."""
    if as_json:
        print_json(
            [
                {
                    "study": ended.study.spec.name,
                    "folder": str(ended.study.store.folder),
                    "error": _problem_of(ended) or None,
                    "result": None if ended.result is None else result_dict(ended.result),
                }
                for ended in ends
            ]
        )
        return
    for ended in ends:
        say(f"== {ended.study.store.folder}")
        if ended.result is not None:
            _print_result(ended.result, ended.study, as_json=False)
        if problem := _problem_of(ended):
            say_line(f"autorl: {ended.study.store.folder}: {problem}", err=True)
        say()


def drive(study: Study, way: Way, *, search: bool = True, more: float | None = None) -> None:
    """Run a study to its end and print the result.

    It shows how it goes, and says where the `more` runs that its budget was given trained nothing.

    Ctrl-C, SIGTERM and SIGHUP stop it where it is, say how to go on, and exit with 130, 143 and
    129.

    Raises:
        StudyError: no test run of the incumbent succeeded.
    """
    driver = study.driver
    was_exhausted = driver.search_end is SearchEnd.OPTIMIZER  # it was said at the start
    proposed = _proposals(study)
    try:
        result = run_study(study, way, search=search)
        _print_result(result, study, as_json=way.as_json)
        exhausted = driver.search_end is SearchEnd.OPTIMIZER
        unused = unspent(study.spec, driver.search_end, driver.budget.spent)
        if unused and exhausted and not was_exhausted:
            # A grid that is through, or a population whose generations are: more budget is no help.
            say_line(f"autorl: {unused}", err=True)
        # `extend` refuses what it can foresee; while outcomes are missing only the end can tell.
        if more is not None and _proposals(study) == proposed and not exhausted:
            steps_left = driver.budget.steps - driver.charges.steps
            remaining = counted(round(steps_left / study.spec.fidelity.steps, 6), "full run")
            say_line(
                f"autorl: --runs +{more:g} trained nothing: the next proposal costs more than the "
                f"{remaining} left; add more",
                err=True,
            )
        if result.problem:
            # After the result: what there is has been printed, and the exit code is 1.
            raise StudyError(
                f"{study.store.folder}: {result.problem}; `autorl watch --once` lists why"
            )
    except KeyboardInterrupt as error:
        raise stopped(error, f"go on with `autorl resume {study.store.folder}`") from None


def stopped(error: KeyboardInterrupt, advice: str) -> typer.Exit:
    """Say that a signal ended the session and how to resume.

    Returns the exit that says it to a shell.
    """
    # The terminal may be gone: that is what SIGHUP says.
    with suppress(OSError):
        say(f"autorl: {reason(error)}; every finished segment is kept: {advice}", err=True)
    return typer.Exit(exit_code(error))


def run_study(study: Study, way: Way, *, search: bool = True) -> Result:
    """Run a study to its end, and show how it goes.

    Changes since earlier sessions are said even if quiet.
    """
    _say_changes(study)
    with reporting({study: ""}, way) as progress:
        shown = None if progress is None else partial(progress, study)
        return study.run(shown, workers=way.workers, search=search)


def _say_changes(study: Study, name: str = "") -> None:
    # A study that is over trains nothing with what has changed.
    changed = None if study.over else changes_by_now(study.tables, study.spec)
    if changed is not None:
        say_line(f"caution: {name}{changed}", err=True)


def _print_result(result: Result, study: Study, *, as_json: bool) -> None:
    """Print the result screen, or its JSON."""
    record = StudyRecord(study.spec, study.store, study.store.folder)
    states = counts_text(configuration_rows(record))
    model = ""
    if study.spec.keep.checkpoints != "none":  # else test runs save nothing
        trainer, _ = study.spec.trainer_for(result.incumbent.config)
        model = study.load(trainer).model_name
    text = result_text(result, model=model, states=states)
    print_answer(text, result_dict(result), as_json=as_json)


def _proposals(study: Study) -> int:
    return sum(study.tables.count_proposals().values())
