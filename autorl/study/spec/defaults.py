"""Completes a study file before it is checked.

Its trainers know how. The functions here work on the content of a YAML file as Python has it, which
may still be wrong anywhere. Once it is checked, defaults give way to what it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from autorl import landscapes, trainers
from autorl.core.plain_text import shown
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.population.task_families import read_task_family
from autorl.space import Hyperparameter, Space, load_space, read_document, unknown_key
from autorl.store.remote import storage_url
from autorl.study.spec.cards import preset_of, read_card
from autorl.study.spec.sections import EnvironmentSection, TaskSection
from autorl.study.spec.spec import LongRolloutError, Spec
from autorl.trainers.info import Preset
from autorl.trainers.language.tasks.files import pinned

Content: TypeAlias = dict[str, Any]


SHORT_FORMS = {"trainer": "name", "environment": "id", "optimizer": "name"}


def write_out(data: Content) -> None:
    """Make mappings of sections that are written as a name alone."""
    algorithms = data.get("algorithms")
    parts = algorithms.values() if isinstance(algorithms, Mapping) else ()
    for part in (data, *parts):
        for key, name in SHORT_FORMS.items():
            if isinstance(part, dict) and isinstance(part.get(key), str):
                part[key] = {name: part[key]}


def complete(data: Content) -> None:
    """Complete the content of a study file in place.

    Its short forms are written out. Default sections are added and paths made absolute.
    """
    _write_out_tasks(data)
    _fill_defaults(data)  # first: they may hold what the next look at
    write_out(data)
    _write_out_id(data)
    _share_n_envs(data)
    _pin_paths(data)


def _fill_defaults(data: Content) -> None:
    """Add the sections that trainers have better defaults for."""
    names = [_name_of(trainer) for trainer in _trainer_sections(data)]
    described = [trainers.info(name, str(data["path"])) for name in names]
    # Trainers of one family have the same defaults: they share the method that says them.
    if not described or len({type(info).default_sections for info in described}) > 1:
        return
    task, kwargs = _environment_of(data)
    for key, section in described[0].default_sections(names, task, kwargs).items():
        stated = data.setdefault(key, section)
        # `reduce` alone is of the task's own metric
        if key == "objective" and isinstance(stated, dict) and "metric" not in stated:
            data[key] = {**section, **stated}
    objective = data.get("objective")
    if isinstance(objective, dict) and described[0].default_metric is not None:
        objective.setdefault("metric", described[0].default_metric)


def _write_out_id(data: Content) -> None:
    """Write out the version of the environment, by which it is recorded."""
    trainer, *_ = _trainer_sections(data) or [None]
    for environment in _environments(data):
        name = environment.get("id")
        if isinstance(name, str) and trainer is not None:
            info = trainers.info(_name_of(trainer), str(data["path"]))
            environment["id"] = info.full_id(name)


def _trainer_sections(data: Mapping[str, object]) -> list[object]:
    """Return what a study file says under `trainer`.

    With `algorithms`, it is what each of them says there.
    """
    algorithms = data.get("algorithms")
    if not isinstance(algorithms, Mapping):
        return [data.get("trainer")]
    sections = [section for section in algorithms.values() if isinstance(section, Mapping)]
    return [section.get("trainer") for section in sections]


def _environment_of(data: Content) -> tuple[str | None, Mapping[str, object] | None]:
    """Return the id of the environment and its options.

    Both come from a study file that is not checked, as far as it says them.
    """
    environment = _section(data, "environment")
    name = environment.get("id")
    kwargs = environment.get("kwargs")
    return name if isinstance(name, str) else None, kwargs if isinstance(kwargs, Mapping) else None


def _share_n_envs(data: Content) -> None:
    """Copy a number of environments among the trainer's options to `environment`.

    There the space's constraints see it.
    """
    trainer = _section(data, "trainer")
    kwargs = _section(trainer, "kwargs")
    if "n_envs" not in kwargs:
        return
    if trainers.info(_name_of(trainer), str(data["path"])).takes_n_envs:
        for environment in _environments(data):
            environment.setdefault("n_envs", kwargs["n_envs"])


def _name_of(trainer: object) -> str:
    name = trainer.get("name") if isinstance(trainer, Mapping) else None
    return name if isinstance(name, str) else ""


def _pin_paths(data: Content) -> None:
    """Make paths among the options of trainers and environment absolute."""
    folder = str(data["path"])  # a study is resumed from any working folder
    storage = data.get("storage")
    if isinstance(storage, str) and storage:
        data["storage"] = storage_url(storage, Path(folder))
    start = data.get("start")
    if isinstance(start, dict):
        for key in {"model", "study", "memory"} & start.keys():
            # Another memory is a name.
            if isinstance(start[key], str) and (key != "memory" or start[key].endswith(".pkl")):
                start[key] = str(Path(folder, start[key]))
    for trainer in _trainer_sections(data):
        if isinstance(trainer, dict) and isinstance(trainer.get("kwargs"), dict):
            kwargs = trainer["kwargs"]
            trainer["kwargs"] = trainers.info(_name_of(trainer), folder).pinned(kwargs, folder)
    trainer, *_ = _trainer_sections(data) or [None]
    for environment in _environments(data):
        # The task `files` has a user's own models and data.
        kwargs = environment.get("kwargs")
        if environment.get("id") == "files" and isinstance(kwargs, Mapping):
            environment["kwargs"] = pinned(kwargs, folder)
        if "landscape" in environment:
            of_task = {"landscape": environment["landscape"]}
            environment |= trainers.info(_name_of(trainer), folder).pinned(of_task, folder)


def _environments(data: Content) -> list[Content]:
    """List the sections that name an environment.

    The study's comes first, then those of its tasks.
    """
    tasks = _section(data, "tasks")
    listed = [data.get("environment")]
    for role in ("tuning", "test"):
        listed += tasks[role] if isinstance(tasks.get(role), list) else []
    return [section for section in listed if isinstance(section, dict)]


def _write_out_tasks(data: Content) -> None:
    """Write out the tasks of a study file in place.

    Its environment becomes the first of them.

    Raises:
        InputError: a family cannot be read, or the file names another environment or landscape.
    """
    tasks = data.get("tasks")
    if not isinstance(tasks, dict):
        return
    environment = _section(data, "environment")
    stated = environment.pop("id", None)
    trainer, *_ = _trainer_sections(data) or [None]
    replays = trainers.info(_name_of(trainer), str(data["path"])).replays_landscape
    for role in ("tuning", "test"):
        entries = tasks.get(role)
        if isinstance(entries, list):
            tasks[role] = [
                task
                for number, entry in enumerate(entries)
                for task in _drawn(
                    {"landscape" if replays else "id": entry} if isinstance(entry, str) else entry,
                    environment,
                    f"tasks.{role}[{number}]",
                    Path(str(data["path"])),
                )
            ]
    first, *_ = tasks.get("tuning") or [None]
    if not isinstance(first, dict):
        return
    if stated not in (None, first.get("id")):
        message = f"is {stated}, and the first task {first.get('id')}: say it there alone"
        raise InputError(message, key="environment.id")
    keys = EnvironmentSection.model_fields
    data["environment"] = {key: value for key, value in first.items() if key in keys}
    evaluation = data.setdefault("evaluation", {})
    if isinstance(evaluation, dict):
        evaluation.setdefault("min", len(tasks["tuning"]))
    if replays and isinstance(trainer, dict):
        trainer["kwargs"] = {**_section(trainer, "kwargs"), "landscape": first.get("landscape")}


FAMILY = "family"
OF_FAMILY = ("count", "seed", "purpose")


def _drawn(entry: object, environment: Content, key: str, folder: Path) -> list[object]:
    """List the tasks that an entry of a list stands for.

    It is one itself, or names a family, whose variants they are.

    Args:
        entry: of a list of tasks.
        environment: what the study says of all of them.
        key: of the entry.
        folder: where a relative file begins.
    """
    if not isinstance(entry, dict) or FAMILY not in entry:
        return [{**environment, **entry} if isinstance(entry, dict) else entry]
    source = entry[FAMILY]
    try:
        content = plain(read_document(folder / source).data if isinstance(source, str) else source)
        changes = {name: entry[name] for name in OF_FAMILY if name in entry}
        family = read_task_family({**content, **changes} if isinstance(content, dict) else content)
        variants = family.variants
    except InputError as error:
        place = f"{key}.family" + (f".{error.key}" if error.key and error.file is None else "")
        raise InputError(error.message, file=error.file, key=place) from None
    task = {name: entry[name] for name in entry if name not in (FAMILY, *OF_FAMILY)}
    base = {**environment, **task}
    kwargs = base.get("kwargs") or {}
    return [
        {**base, "id": item.id, "kwargs": {**kwargs, **plain(item.parameters)}} for item in variants
    ]


PRESET = "preset"
PRESET_KEYS = ("zoo", "entry", "card")


def apply_preset(data: Content) -> None:
    """Write out the section `preset` of a study file in place.

    Raises:
        InputError: the section is wrong, its file cannot be read, or a value of it is outside the
            space.
    """
    section = data.pop(PRESET, None)
    if section is None:
        return
    folder = str(data["path"])
    trainer = _section(data, "trainer")
    environment = _section(data, "environment")
    if isinstance(section, str):
        section = {"zoo": section}
    files = [section.get(key) for key in ("zoo", "card")] if isinstance(section, Mapping) else []
    if [isinstance(file, str) for file in files].count(True) != 1:
        message = f"expected {{zoo: FILE, entry: NAME}} or {{card: FILE}}, got {shown(section)}"
        raise InputError(message, key=PRESET)
    for key in section:
        if key not in PRESET_KEYS:
            raise InputError(unknown_key(key, PRESET_KEYS), key=f"{PRESET}.{key}")
    preset = read(str(trainer.get("name")), folder, section, environment.get("id"))
    if "space" not in data:
        raise InputError("a study with a preset needs a space", key=PRESET)
    kwargs = _section(trainer, "kwargs")
    space = load_space(data["space"], Path(folder))
    n_envs = kwargs.get("n_envs", environment.get("n_envs", preset.environment.get("n_envs", 1)))
    if "n_envs" in space.hyperparameters:
        # The space decides it, from the preset's number on.
        of_task = {name: value for name, value in preset.environment.items() if name != "n_envs"}
        values = {"n_envs": n_envs, **preset.values}
    else:
        of_task = {**preset.environment, "n_envs": n_envs}
        values = dict(preset.values)
    data["environment"] = {**plain(of_task), **environment}
    searched = {name: value for name, value in values.items() if name in space.hyperparameters}
    data["space"] = _with_defaults(space, searched, n_envs)
    beside_space = _beside_space(space, values, kwargs)
    policy = {} if preset.policy is None else {"policy": preset.policy}
    data["trainer"] = {**trainer, "kwargs": {**plain(beside_space), **policy, **kwargs}}
    if preset.steps is not None and isinstance(data.setdefault("fidelity", {}), dict):
        data["fidelity"].setdefault("steps", preset.steps)


def read(
    trainer: str,
    folder: str | None,
    source: Mapping[str, Any],
    environment: str | None,
    key: str = PRESET,
) -> Preset:
    """Read a card, or a preset by the trainer's own reader.

    Args:
        trainer: its name.
        folder: where a relative file begins.
        source: `card`, or `zoo` with `entry` where it is not the environment's.
        environment: of the study.
        key: of the section that names it.

    Raises:
        InputError: naming the file and line, or the section where the trainer has no presets.
    """
    path = Path(folder or ".") / (source.get("card") or source["zoo"])
    try:
        if source.get("card"):
            return preset_of(read_card(path), trainer, path)
        entry = source.get("entry")
        return trainers.info(trainer, folder).read_preset(trainer, path, environment, entry)
    except InputError as error:
        if error.file is None:
            raise InputError(error.message, key=key) from None
        raise


def _beside_space(space: Space, values: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Content:
    """Return what the preset says beside space and study file.

    A schedule goes with its start: where that is fixed, the preset's shape is not asked.
    """
    of_policy = kwargs.get("policy_kwargs") or {}
    stated = {*kwargs, *of_policy}
    stated |= {name for name, item in space.hyperparameters.items() if item.type == "constant"}
    if "activation_fn" in stated:
        stated.add("activation")
    return {
        name: value
        for name, value in values.items()
        if name not in space.hyperparameters
        and not {name, name.removesuffix(".shape").removesuffix(".end")} & stated
    }


def _section(data: Content, key: str) -> Content:
    """Copy a section, empty where none is written."""
    section = data.get(key)
    return dict(section) if isinstance(section, Mapping) else {}


def _with_defaults(space: Space, values: Mapping[str, Any], n_envs: int) -> Content:
    """Write a space with other defaults.

    Raises:
        InputError: one of them is outside it.
    """
    content: Content = plain(space.to_dict())
    if "n_envs" in content.get("constants", {}):
        content["constants"]["n_envs"] = n_envs
    for name, value in values.items():
        hyperparameter = space.hyperparameters[name]
        # A value that the study's space fixes is not the preset's.
        if hyperparameter.type == "constant":
            continue
        fitting = within(hyperparameter, value)
        problem = hyperparameter.problem(fitting)
        if problem is not None:
            message = f"{name} of the preset: {problem}: widen the space, or take it out there"
            raise InputError(message, key=PRESET)
        content["hyperparameters"][name]["default"] = plain(fitting)
    return content


def within(hyperparameter: Hyperparameter, value: object) -> Any:
    """Return a preset's value as a hyperparameter has it.

    The format's schedules end at 0, which no logarithm reaches: such an end is the lower bound.
    """
    if hyperparameter.name.endswith(".end") and value == 0 and hyperparameter.lower is not None:
        return max(0.0, hyperparameter.lower)
    return hyperparameter.canonical(value)


def start_of_preset(
    space: Space, preset: Preset, fixed: Mapping[str, Any], environment: Mapping[str, Any]
) -> Content:
    """Make a configuration of a preset, with defaults where it says nothing.

    Args:
        space: of the study.
        preset: whose values go into it.
        fixed: hyperparameters the study trains with beside the space.
        environment: of the study, by the keys of its section.

    Raises:
        InputError: the preset says something else than the study does, beside the space.
    """
    values = dict(preset.values)
    if "n_envs" in preset.environment:
        values["n_envs"] = preset.environment["n_envs"]
    for name, value in values.items():
        if name not in space.hyperparameters and plain(fixed.get(name)) != plain(value):
            raise InputError(
                f"the preset has {shown(plain(value))}, which is neither in the space nor what the "
                f"study trains with ({shown(plain(fixed.get(name)))}): "
                "give it in trainer.kwargs, or n_envs in environment",
                key=name,
            )
    for name in ("normalize", "wrappers", "kwargs"):
        value = plain(preset.environment.get(name, environment[name]))
        if value != plain(environment[name]):
            raise InputError(
                f"the preset has {shown(value)}, the study {shown(plain(environment[name]))}",
                key=f"environment.{name}",
            )
    config = {
        name: within(hyperparameter, values.get(name, hyperparameter.default))
        for name, hyperparameter in space.hyperparameters.items()
    }
    # A child of what has become inactive is inactive in its turn.
    while inactive := config.keys() - space.active(config):
        config = {name: value for name, value in config.items() if name not in inactive}
    return config


FEWEST_EPISODES = 2  # the default's least: the return of one has no spread


def with_default_episodes(spec: Spec) -> Spec:
    """Copy a spec with fewer episodes, if nobody wrote how many.

    All evaluations of a run then take at most a tenth of its steps, or two episodes each.
    """
    fidelity = spec.fidelity
    if "episodes" in fidelity.model_fields_set or spec.longest_episode is None:
        return spec
    a_tenth = fidelity.steps // (10 * len(spec.evaluation_steps) * spec.longest_episode)
    episodes = min(fidelity.episodes, max(FEWEST_EPISODES, a_tenth))
    update = {"episodes": episodes}
    return spec.model_copy(update={"fidelity": fidelity.model_copy(update=update)})


_QUANTILES = 21  # of a landscape's scores: steps of 5 %


def with_quantiles(spec: Spec) -> Spec:
    """Copy a spec with quantiles as the scale of landscape tasks.

    They are of the last step and the landscape's tuning seeds; failed runs count with its penalty.

    Raises:
        InputError: a landscape cannot be read, or the trainer replays none.
    """
    if spec.tasks is None:
        return spec
    names = [trainer.name for trainer in spec.trainers.values()]
    replays = all(trainers.info(name, spec.path).replays_landscape for name in names)
    listed = []
    for number, task in enumerate(spec.tasks.listed):
        key = spec.tasks.key(number)
        if replays == (task.landscape is None):
            needs = "needs" if replays else "takes no"
            raise InputError(f"trainer {names[0]} {needs} `landscape`", key=key)
        try:
            listed.append(_with_quantiles(spec, task))
        except InputError as error:
            raise InputError(error.message, file=error.file, key=f"{key}.landscape") from None
    count = len(spec.tasks.tuning)
    update = {"tuning": listed[:count], "test": listed[count:]}
    return spec.model_copy(update={"tasks": spec.tasks.model_copy(update=update)})


def _with_quantiles(spec: Spec, task: TaskSection) -> TaskSection:
    if task.landscape is None or task.scale is not None:
        return task
    data = landscapes.load_landscape(task.landscape)
    grid = data.grid
    scores = grid.at(len(grid.steps) - 1).values[:, grid.seed_positions("tuning")]
    scores = scores[~np.isnan(scores)]
    metrics = [objective.metric for objective in spec.objective]
    # `check_tasks` asks for one that cannot be told from the landscape.
    if metrics != [data.manifest.objective.metric] or not np.ptp(scores):
        return task
    quantiles = np.quantile(scores.astype(float), np.linspace(0, 1, _QUANTILES)).tolist()
    return task.model_copy(update={"scale": quantiles})


def with_shorter_rollout(spec: Spec, written: Mapping[str, object]) -> Spec:
    """Copy a spec with defaults that give way to its file.

    First there are fewer evaluations, then a shorter default rollout. If both are written the spec
    stays as it is: its space then says which rule it breaks.

    Args:
        spec: the checked study file.
        written: the study file, before its defaults were filled in.
    """
    fidelity = written.get("fidelity")
    stated = isinstance(fidelity, Mapping) and "evaluations" in fidelity
    most = spec.fidelity.evaluations
    copy = spec
    for count in () if stated else range(most - 1, 0, -1):
        if not _has_long_rollout(copy):
            break
        fewer = spec.fidelity.model_copy(update={"evaluations": count})
        copy = spec.changed(fidelity=fewer)
    lines = [line for part in _parts(spec, written).values() for line in _moved(spec, part)]
    if copy is not spec:
        count = copy.fidelity.evaluations
        lines.append(f"fidelity.evaluations: {count}, not {most}: a rollout ends before each")
    if _has_long_rollout(copy):
        shorter = _with_shorter_defaults(copy, written)
        if shorter is None:
            return spec
        copy, shortened = shorter
        lines += shortened
    return copy.remember(given_way=lines)


def _parts(spec: Spec, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parts of a study file with spaces, by algorithm."""
    return {"": written} if spec.algorithms is None else written["algorithms"]


def _moved(spec: Spec, part: Mapping[str, Any]) -> list[str]:
    """Say which defaults went to a bound that the study file narrows."""
    space = part.get("space")
    if not isinstance(space, dict) or "extends" not in space:
        return []
    try:
        base = load_space(space["extends"], spec.folder).hyperparameters
        narrowed = load_space(space, spec.folder).hyperparameters
    except InputError:  # which the checks of the space locate
        return []
    lines = []
    for name, entry in (space.get("hyperparameters") or {}).items():
        stated = isinstance(entry, Mapping) and {"default", "type", "value"} & set(entry)
        if stated or name not in base or name not in narrowed:
            continue
        before = base[name].default
        after = narrowed[name].default
        if after != before and after in (narrowed[name].lower, narrowed[name].upper):
            lines.append(f"default of {name}: {after:g}, not {before:g}: it is the nearest bound")
    return lines


def _is_long(spec: Spec, space: str | dict[str, Any]) -> bool:
    """Tell whether the default rollout of a space is too long."""
    try:
        spec.with_numbers(space)
    except LongRolloutError:
        return True
    except InputError:  # another fault, which the checks of the space locate
        return False
    return False


def _has_long_rollout(spec: Spec) -> bool:
    return any(_is_long(spec, part.space) for part in spec.parts.values())


def _with_shorter_defaults(spec: Spec, written: Mapping[str, Any]) -> tuple[Spec, list[str]] | None:
    """Find the longest defaults of `n_steps` that fit, where none is written."""
    lines = []
    for name, section in _parts(spec, written).items():
        space = spec.parts[name].space
        if not _is_long(spec, space):
            continue
        fitting = (pair for pair in _shorter(spec, space, section) if not _is_long(spec, pair[0]))
        shorter, line = next(fitting, (None, ""))
        if shorter is None:
            return None
        lines.append(f"{name}: {line}" if name else line)
        if spec.algorithms is None:
            spec = spec.changed(space=shorter)
        else:
            part = spec.algorithms[name].model_copy(update={"space": shorter})
            spec = spec.changed(algorithms={**spec.algorithms, name: part})
    return spec, lines


def _shorter(
    spec: Spec, space: str | dict[str, Any], section: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield spaces with ever shorter defaults of `n_steps`, and lines for people."""
    stated = section.get("space")
    named = stated.get("hyperparameters") if isinstance(stated, Mapping) else None
    if isinstance(named, Mapping) and "n_steps" in named:
        return
    rollout = load_space(space, spec.folder).hyperparameters.get("n_steps")
    default: Any = getattr(rollout, "default", 0)
    choices: Any = getattr(rollout, "choices", ())
    content: dict[str, Any] = space if isinstance(space, dict) else {"extends": space}
    for steps in sorted((n for n in choices if n < default), reverse=True):
        changed = dict(content.get("hyperparameters") or {})
        changed["n_steps"] = {**(changed.get("n_steps") or {}), "default": steps}
        line = f"default of n_steps: {steps}, not {default}: evaluations are near"
        yield {**content, "hyperparameters": changed}, line
