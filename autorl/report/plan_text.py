"""A plan as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from autorl.core.plain_text import counted
from autorl.core.plain_values import json_value
from autorl.core.types import Resources
from autorl.executors.devices import (
    VISIBLE_DEVICES,
    Allocator,
    Capacity,
    most_at_once,
    thread_count,
    variables,
)
from autorl.executors.worker import ONE_THREAD
from autorl.optimizers.model_share import share_dict, share_text
from autorl.report.idle import idle_text
from autorl.report.plan import MOST_SEGMENTS, Plan
from autorl.report.table import columns, one_line
from autorl.study.budget import MEASURED_BY_SEGMENT, MEASURED_NOUNS
from autorl.study.setup import ON_THIS_MACHINE, capacity, executor_name, segments_at_once
from autorl.study.spec import EnvironmentSection, Spec
from autorl.study.spec.options import options_to_show

_Rows = list[tuple[str, str]]


def plan_text(plan: Plan) -> str:
    """Write the plan as a screen of text."""
    spec = plan.spec
    rows = [*_study_rows(spec), *(("proven", line) for line in plan.proven), *_work_rows(plan)]
    workers = str(plan.workers)
    if not (plan.open_ended or spec.asynchronous):
        workers += f": {idle_text(plan.idle, plan.workers, learns=plan.learns)}"
    rows += [("workers", workers), ("trains on", _devices_text(spec)), *placement_rows(spec)]
    checkpoints = f"keep: {spec.keep.checkpoints}; at most {plan.checkpoints} outlive the study"
    if plan.rungs:
        checkpoints += ", besides what the optimizer may resume when the budget is extended"
    # Logs count too; a study that stopped here goes on when the limit is raised.
    if spec.limits.disk_gb is not None:
        checkpoints += f"; the study stops at {spec.limits.disk_gb:g} GiB"
    rows += [("checkpoints", checkpoints), *plan.sizes]
    if spec.indeterminate:
        rows.append(("caution", f"another run may give another table: {spec.indeterminate}"))
    notes = [f"caution: {text}" for text in plan.cautions]
    if (plan.evaluation_steps or 0) > plan.search.trained + plan.test.trained:
        notes.append(
            "caution: evaluation may take more steps than training: "
            "fewer fidelity.evaluations or fidelity.episodes"
        )
    if plan.cut:
        notes.append(f"counted up to {MOST_SEGMENTS:,} segments: the study is larger")
    if not plan.exact and not plan.open_ended:
        notes.append("counts depend on the scores: these are of a run on random scores")
    table = columns(("dry run", "nothing is written"), rows, indent="")
    return "\n".join([table, *map(one_line, notes)])


def _study_rows(spec: Spec) -> _Rows:
    names = spec.search_space.names
    section = spec.optimizer
    options = options_to_show(section, spec.path)
    if section.stop:
        options = {"stop": section.stop, **options}
    if section.rungs is not None:
        options["rungs"] = section.rungs
    optimizer = [section.name, *(f"{name}: {value}" for name, value in options.items())]
    evaluation = spec.evaluation
    seeds = "all of them for every proposal"
    if evaluation.seeds != "fixed":
        most = evaluation.max or len(spec.plan.tuning)
        seeds = f"{evaluation.seeds} from {evaluation.min} to {most}"
    over = "seeds" if spec.tasks is None else "tasks and seeds"
    # The study file may describe the space in place.
    space = f"{spec.space}, " if isinstance(spec.space, str) else ""
    objectives = (f"{objective.label}, {objective.of_score}" for objective in spec.objectives())
    return [
        ("study", f"{spec.name}: {spec.trainer_names}"),
        *([("start", f"every run begins from {spec.start.model}")] if spec.start else []),
        *_tasks(spec),
        ("space", f"{space}{counted(len(names), 'hyperparameter')}: {', '.join(names)}"),
        ("optimizer", ", ".join(optimizer)),
        ("objective", ", ".join(objectives)),
        ("parallelism", f"{counted(spec.parallelism, 'proposal')} in flight"),
        (
            "tuning seeds",
            f"{spec.plan.text('tuning')}, {seeds}, {evaluation.aggregate} over {over}",
        ),
        ("budget", "; ".join([_budget_text(spec), *_early_ends(spec)])),
    ]


def _tasks(spec: Spec) -> _Rows:
    """Name the environment, or each task with its scale."""
    if spec.tasks is None:
        return [("environment", ", ".join(_environment(spec.environment)))]
    rows = []
    for number, task in enumerate(spec.tasks.listed):
        parts = [task.label, *(part for part in _environment(task) if task.id)]
        if isinstance(task.scale, list) and len(task.scale) > 2:
            parts.append(f"scores by {len(task.scale)} quantiles")
        elif task.scale is not None:
            parts.append(f"scores from {task.scale}")
        role = "tuning" if number < len(spec.tasks.tuning) else "test"
        rows.append((f"{role} task", ", ".join(dict.fromkeys(parts))))
    return rows


def _environment(section: EnvironmentSection) -> Iterable[str]:
    """Name the environment, and what is put around it."""
    yield section.id or "the trainer's own"
    if section.n_envs > 1:
        yield f"{section.n_envs} side by side"
    if section.vec_env in ("envpool", "gymnasium"):
        yield "stepped by EnvPool" if section.vec_env == "envpool" else "stepped together"
    if section.normalize:
        yield "normalised"
    targets = [
        str(target).rpartition(":")[2]
        for entry in section.wrappers
        for target in (entry if isinstance(entry, Mapping) else [entry])
    ]
    if targets:
        yield f"wrapped by {', '.join(targets)}"


def _work_rows(plan: Plan) -> _Rows:
    spec = plan.spec
    horizon = spec.fidelity.steps
    about = "" if plan.exact else "about "
    measured = spec.budget.measured
    unknown = f": {spec.parallelism} begin before it is known how many a proposal takes"
    unknown = unknown if measured in MEASURED_BY_SEGMENT else ""
    noun = MEASURED_NOUNS.get(measured or "")
    rows = [("proposals", f"as many as the {noun}s allow{unknown}")]
    if not plan.open_ended:
        count = f"{about}{plan.search.proposals} in {counted(plan.search.segments, 'segment')}"
        rows = [("proposals", count), ("", share_text(plan.share, learns=plan.learns, about=about))]
        if (parts := plan.confirmed) is not None:
            explore = counted(parts.explore / horizon, "full run", "explore", form="g")
            best = counted(parts.proposals, "proposal")
            text = f"{explore}, {parts.confirm / horizon:g} confirm the best {best}"
            rows.append(("confirmation", f"{text}, up to {counted(parts.seeds, 'seed')} each"))
    points = f"evaluated {counted(len(spec.evaluation_steps), 'time')}, "
    points += f"{counted(spec.fidelity.episodes, 'episode')} each"
    rows += [("steps of a run", f"{horizon}, {points}"), *(("", line) for line in spec.given_way)]
    if plan.rungs:
        rows.append(("rungs", f"runs are cut at steps {', '.join(map(str, plan.rungs))}"))
    # In the optimizer's own words: only it knows its brackets.
    rows += [("" if number else "schedule", line) for number, line in enumerate(plan.outline)]
    if plan.baseline.segments:
        who = ", ".join(("the default configuration", *spec.baselines))
        text = (
            f"{who} as far as the incumbent, "
            f"at most {plan.baseline.steps:,} {spec.steps} beyond the budget, "
            "where the search leaves it shorter"
        )
        rows.append(("baseline", text))
    if plan.models.segments:
        text = (
            "trained once more, to the step their score is of: "
            f"at most {counted(plan.models.segments, 'run')}, {plan.models.steps:,} {spec.steps}, "
            "beyond the budget"
        )
        rows.append(("kept models", text))
    rows.append(("test phase", _test_text(plan)))
    return rows if plan.open_ended else [*rows, *_step_rows(plan)]


def _step_rows(plan: Plan) -> _Rows:
    """Write the steps that are charged, those really trained, and evaluations.

    Trained steps stand there where runs end later, or where that is not known.
    """
    spec = plan.spec
    nominal = _sum_text(plan, "steps", exact=plan.exact)
    rows = [(spec.steps, nominal)]
    as_charged = all(phase.trained == phase.steps for phase in (plan.search, plan.test))
    # One line where both are the same number and equally sure.
    if not as_charged or plan.trained_exact != plan.exact:
        why = "runs end only where a rollout does"
        if plan.rungs:
            why += ", and start again where their trainer cannot continue"
        if plan.exact and not plan.trained_exact:
            why += ", and other configurations than the study's were looked at"
        trained = _sum_text(plan, "trained", exact=plan.trained_exact)
        rows = [
            (spec.steps, f"nominal, as the budget counts: {nominal}"),
            ("really trained", f"{trained}; {why}"),
        ]
    count = plan.search.evaluations + plan.test.evaluations
    evaluations = f"{'at most' if plan.exact else 'about'} {count:,}"
    if plan.evaluation_steps is not None:
        evaluations += (
            f" of {counted(spec.fidelity.episodes, 'episode')}, at most "
            f"{counted(spec.longest_episode or 0, 'step', form=',')} each: "
            f"up to {plan.evaluation_steps:,} steps"
        )
    return [*rows, ("evaluations", evaluations)]


def _sum_text(plan: Plan, of: str, *, exact: bool) -> str:
    """Sum `steps` (nominal) or `trained` over all phases.

    Test runs may end before the horizon.
    """
    phases = (plan.search, plan.test, plan.baseline, plan.models)
    search, test, *more_steps = (getattr(phase, of) for phase in phases)
    beyond = sum(more_steps)
    # Candidates may coincide, and test runs may end at a step that tuning seeds choose.
    bound = "at most " if exact or plan.spec.ends_at_chosen_step else ""
    more = f" + up to {beyond:,} beyond the budget" if beyond else ""
    total = f"{'at most' if exact else 'about'} {search + test + beyond:,}"
    return f"{total}: {search:,} search + {bound}{test:,} test{more}"


def plan_dict(plan: Plan) -> dict[str, object]:
    """Return the plan as JSON types."""
    spec = plan.spec
    phases = (plan.search, plan.baseline, plan.test, plan.models)
    document: dict[str, object] = json_value(
        {
            **{name: getattr(plan, name) for name in _AS_THEY_ARE},
            "name": spec.name,
            "trainers": [trainer.name for trainer in spec.trainers.values()],
            "environment": spec.environment.id,
            "optimizer": spec.optimizer.name,
            "seeds": {"tuning": list(spec.plan.tuning), "test": list(spec.plan.test)},
            "tasks": spec.tasks and [task.label for task in spec.tasks.listed],
            "steps_of_a_run": spec.fidelity.steps,
            "evaluations_of_a_run": len(spec.evaluation_steps),
            "schedule": plan.outline,
            "new_configurations": share_dict(plan.share, learns=plan.learns),
            "environment_steps": None if plan.open_ended else sum(phase.steps for phase in phases),
            "trained_steps": None if plan.open_ended else sum(phase.trained for phase in phases),
            "placement": placement_list(spec),
            "checkpoints": {"keep": spec.keep.checkpoints, "at_most": plan.checkpoints},
            "sizes": dict(plan.sizes),
        }
    )
    return document


_AS_THEY_ARE = (
    *("rungs", "cautions", "proven", "exact", "open_ended", "search", "confirmed", "test"),
    *("baseline", "models", "trained_exact", "evaluation_steps", "workers", "idle"),
)


def _budget_text(spec: Spec) -> str:
    budget = spec.budget
    if budget.runs is not None:
        steps = counted(budget.runs * spec.fidelity.steps, spec.step, form=",.0f")
        return f"{counted(budget.runs, 'full run')} ({steps}) of tuning"
    if budget.configurations is not None:
        return counted(budget.configurations, "configuration")
    if budget.environment_steps is not None:
        return f"{counted(budget.environment_steps, spec.step, form=',')} of tuning"
    assert budget.measured is not None, "a budget is counted in one of these"
    amount = getattr(budget, budget.measured)
    return counted(amount, MEASURED_NOUNS[budget.measured], form=",.12g")


def _early_ends(spec: Spec) -> list[str]:
    """Say what ends the search before its budget is used up."""
    target = spec.budget.target
    patience = spec.budget.converged
    return [
        *([] if target is None else [f"less once the tuning score is {target:g}"]),
        *([] if patience is None else [f"less once {patience} configurations improve no more"]),
    ]


def _test_text(plan: Plan) -> str:
    test = plan.spec.test
    seeds = plan.spec.plan.text("test")
    if not plan.spec.plan.test:
        return "none: seeds.test is empty, so there will be no number to report"
    # Trained by the search alone, it may end before the incumbent, or not be there.
    default = "default configuration"
    default += "" if plan.spec.adds_baseline else " as far as the search trains it"
    best = f", and the best {test.top}" if test.top > 1 else ""
    count = f"at most {counted(plan.test.proposals, 'candidate')}, "
    count += counted(plan.test.segments, "segment")
    return f"incumbent, {default}{best}, on held-out seeds {seeds}: {count}"


_MOST_SHOWN = 8  # places of one algorithm


@dataclass(frozen=True)
class Share:
    """Resources of the segments of one algorithm.

    Attributes:
        algorithm: "" where the study has one trainer.
        needs: of a segment.
        at_once: segments of this algorithm alone; None: another machine decides it.
        visible_devices: the values of CUDA_VISIBLE_DEVICES, and how many segments have each.
    """

    algorithm: str
    needs: Resources
    at_once: int | None
    visible_devices: dict[str, int]


def _shares(spec: Spec) -> list[Share]:
    """List what the segments of each algorithm have."""
    name = executor_name(spec)
    needs = spec.resources_by_algorithm
    if name not in ON_THIS_MACHINE:
        return [Share(algorithm, need, None, {}) for algorithm, need in needs.items()]
    of_machine = capacity(spec)
    at_once = segments_at_once(spec, name)
    result = []
    for algorithm, need in needs.items():
        count = at_once
        if of_machine != Capacity():
            count = min(count, most_at_once(of_machine, [need]))
        visible: list[str] = []
        if of_machine.groups:  # which segments choose one after another
            allocator = Allocator(of_machine)
            placed = (allocator.place(need) for _ in range(count))
            visible = [variables(place, of_machine)[VISIBLE_DEVICES] for place in placed if place]
        result.append(Share(algorithm, need, count, dict(Counter(visible))))
    return result


def _devices_text(spec: Spec) -> str:
    """Write what the segments of each algorithm train on."""
    rows = []
    for algorithm, device in spec.devices.items():
        gpu = spec.resources_by_algorithm[algorithm].gpu
        of_user = "cuda, if its code uses it" if gpu else "what its code chooses"
        rows.append(f"{algorithm}: {device or of_user}" if algorithm else device or of_user)
    return "; ".join(rows)


def placement_rows(spec: Spec) -> list[tuple[str, str]]:
    """Write the resources of the segments of each algorithm.

    There are no rows if nobody asks for any.
    """
    plain_study = set(spec.resources_by_algorithm.values()) == {Resources()}
    if plain_study and spec.resources is None:
        return []
    rows = []
    for share in _shares(spec):
        where = f"placed by `{executor_name(spec)}`"
        if share.at_once is not None:
            where = f"at most {share.at_once} at once on this machine"
        said = [("resources", f"{_needs_text(share.needs)} a segment; {where}")]
        if share.visible_devices:
            places = [
                f"{devices or 'none'} ({counted(count, 'segment')})"
                for devices, count in islice(share.visible_devices.items(), _MOST_SHOWN)
            ]
            more = len(share.visible_devices) - _MOST_SHOWN
            places += [f"{more} more"] if more > 0 else []
            said.append(("devices", f"{VISIBLE_DEVICES} = {'; '.join(places)}"))
        threads = thread_count(share.needs)
        if threads > 1:
            said.append(("threads", f"{', '.join(ONE_THREAD)} = {threads}"))
        if share.needs.nodes > 1:
            text = f"MASTER_ADDR, MASTER_PORT, WORLD_SIZE = {share.needs.nodes}, RANK of each host"
            said.append(("gang", text))
        prefix = f"{share.algorithm}: " if share.algorithm else ""
        rows += [(name, prefix + text) for name, text in said]
    return rows


def placement_list(spec: Spec) -> list[dict[str, object]]:
    """Return what the segments of each algorithm have, as JSON types."""
    return [
        {
            **vars(share),
            "trains_on": spec.devices[share.algorithm],
            "threads": thread_count(share.needs),
        }
        for share in _shares(spec)
    ]


def _needs_text(needs: Resources) -> str:
    """Write what a segment needs: `1 core, 2 GPUs`."""
    parts = [counted(needs.cpu, "core", form="g")]
    if needs.gpu:
        parts.append(f"{needs.gpu:g} {'GPU' if needs.gpu <= 1 else 'GPUs'}")
    if needs.memory_gb is not None:
        parts.append(f"{needs.memory_gb:g} GiB")
    parts += [f"{amount:g} {name}" for name, amount in needs.custom.items()]
    if needs.nodes > 1:
        parts.append(f"on each of {needs.nodes} hosts")
    return ", ".join(parts)
