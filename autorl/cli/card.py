"""The commands card and verify: tested configurations for others to check."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autorl.cli.options import AsJson, Folder, Quiet, Workers, print_answer, say_line
from autorl.cli.progress import Way
from autorl.cli.run import STUDIES, run_study, stopped
from autorl.core.plain_text import counted, number
from autorl.core.types import InputError
from autorl.report.reading import open_view
from autorl.report.text import interval_text
from autorl.store.outputs import free_output, write_output
from autorl.study.folder.opening import create_or_open
from autorl.study.folder.safety import verify as verdict_on
from autorl.study.results.card import judge_card, make_card, study_again
from autorl.study.spec import load_spec
from autorl.study.spec.cards import check_signature, read_card, signed_text


def card(
    folder: Folder, out: Annotated[Path | None, typer.Option()] = None, replace: bool = False
) -> None:
    """Write the incumbent with its test scores as a signed card.

    It holds space, configuration, seeds, scores with their interval, versions, hashes and cost:
    what `autorl verify` and `preset` of a study file read. A study whose log is damaged has none.

    Options:
        out: The file; default <name>.card.yaml in the working folder.
    """
    verdict = verdict_on(folder)
    if not verdict.whole:
        raise InputError(f"is damaged: {verdict.problems[0]}", file=str(folder))
    with closing(open_view(folder)) as view:
        place = out or Path(f"{view.spec.name}.card.yaml")
        place = free_output(place, (".yaml", ".yml"), replace=replace)
        made = make_card(view.record, view.result())
    write_output(place, signed_text(made))
    seeds = counted(len(made["score"]["seeds"]), "test run")
    say_line(f"{place}: IQM {number(made['score']['iqm'])} of {seeds}; signed with this user's key")


def verify(
    card: Annotated[Path, typer.Argument(metavar="CARD")],
    rerun: Annotated[int, typer.Option(min=1, max=1000)] = 3,
    out: Annotated[Path | None, typer.Option()] = None,
    unsigned: bool = False,
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a card again on new test seeds: inside or outside.

    Inside (exit code 0): the mean of the new seeds is one that as many seeds of the card and the
    new ones together have, 95 % of the splits (docs/cards.md). Outside: exit code 1. Given again,
    it goes on where it was stopped.

    Options:
        card: A file of `autorl card`; modules and data that it names lie beside it.
        rerun: New test seeds.
        out: Folder of the study that trains them; default studies/<name>-verify.
        unsigned: Take a card that this installation did not sign, or that was edited; it can name
            modules and commands to run.
    """
    certified = read_card(card)
    if not unsigned:
        check_signature(certified, card)
    spec = load_spec(study_again(certified, rerun, card.resolve().parent))
    try:
        with closing(create_or_open(spec, out or STUDIES / spec.name, option="--out")) as study:
            result = run_study(study, Way(workers, as_json, quiet))
    except KeyboardInterrupt as error:
        raise stopped(error, "go on with the same command") from None
    verdict = judge_card(certified, spec, result)
    word = "inside" if verdict.inside else "outside"
    lines = [
        f"card: {certified.score.objective}; {counted(len(verdict.card), 'test seed')}, "
        f"IQM {number(certified.score.iqm)}",
        "new: " + ", ".join(f"seed {seed} {number(score)}" for seed, score in verdict.new.items()),
        f"{word}: their mean {number(verdict.mean)}; 95 % of the splits of all seeds have "
        f"{interval_text(verdict.interval)}",
        *(f"other than the card's: {text}" for text in verdict.differs),
    ]
    document = {
        "card": str(card),
        "inside": verdict.inside,
        "mean": verdict.mean,
        "interval": [verdict.interval.low, verdict.interval.high],
        "seeds": {str(seed): score for seed, score in verdict.new.items()},
        "differs": list(verdict.differs),
    }
    print_answer("\n".join(lines), document, as_json=as_json)
    if not verdict.inside:
        raise typer.Exit(1)
