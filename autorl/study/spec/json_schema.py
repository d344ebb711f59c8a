"""Makes the JSON Schema of the study file from what checks it."""

from __future__ import annotations

from collections.abc import Sequence

from autorl import optimizers, trainers
from autorl.core import json_schema
from autorl.core.json_schema import Json, mapping
from autorl.optimizers.json_schema import optimizer_name, optimizer_options
from autorl.population.task_families import TaskFamily
from autorl.space.json_schema import definitions as of_spaces
from autorl.study.spec.comparison import CompareSection
from autorl.study.spec.defaults import FAMILY, OF_FAMILY, PRESET, PRESET_KEYS, SHORT_FORMS
from autorl.study.spec.sections import AlgorithmSection, TaskSection, TasksSection, WarmStartSection
from autorl.study.spec.spec import Spec
from autorl.trainers.registry import ALIASES


def study_schema(names: Sequence[str] = ()) -> tuple[Json, Json]:
    """Describe the study file.

    Args:
        names: the optimizers it may name; default: all there are.

    Returns:
        Its content, and the definitions that it uses.
    """
    names = names or optimizers.names()
    definitions = json_schema.definitions(Spec, CompareSection) | of_spaces()
    optimizer = definitions["OptimizerSection"]
    optimizer["properties"]["name"] |= optimizer_name(names)
    optimizer |= {"additionalProperties": True, "allOf": optimizer_options(names)}
    definitions["TrainerSection"]["properties"]["name"] |= _trainer_name()
    study = definitions.pop(Spec.__name__)
    space = {"anyOf": [_TEXT, {"$ref": "#/definitions/inline_space"}]}
    for part in (study, definitions[AlgorithmSection.__name__]):
        part["properties"]["space"] |= space
        for key, name in SHORT_FORMS.items():
            if key in part["properties"]:
                named = definitions[f"{key.title()}Section"]["properties"][name]
                _or(part, key, named if "type" in named else _TEXT)
    task = definitions[TaskSection.__name__]
    said = {**json_schema.sentences(TaskFamily), FAMILY: _FAMILY}
    task["properties"] |= {key: {"description": said[key]} for key in (FAMILY, *OF_FAMILY)}
    for key in ("tuning", "test"):
        listed = definitions[TasksSection.__name__]["properties"][key]
        listed["items"] = {"anyOf": [_TEXT, {"$ref": f"#/definitions/{TaskSection.__name__}"}]}
    of_file = definitions[WarmStartSection.__name__]["properties"]
    preset = mapping({key: of_file[key] for key in PRESET_KEYS})
    study["properties"] |= {
        PRESET: {"anyOf": [{"type": ["string", "null"]}, preset], "description": _PRESET},
        "compare": {"$ref": f"#/definitions/{CompareSection.__name__}", "description": _COMPARE},
    }
    study["required"].remove("fidelity")  # some trainers and presets have their own
    return study, definitions


_TEXT: Json = {"type": "string"}
_FAMILY = "A family of tasks, its file or a mapping: its variants stand in its place."
_PRESET = "Defaults from a file of RL Baselines3 Zoo, or from a card."
_COMPARE = "What autorl compare FILE compares; nothing else takes such a file."


def _or(part: Json, key: str, short: Json) -> None:
    """Let a section be written as a name alone."""
    stated = part["properties"][key]
    said = {name: stated.pop(name) for name in ("description", "default") if name in stated}
    part["properties"][key] = {"anyOf": [short, stated], **said}


def _trainer_name() -> Json:
    """Describe names of trainers, and code of the user's."""
    listed = [*trainers.names(), *ALIASES]
    families = [name[:-1] for name in listed if name.endswith("*")]
    single = [name for name in listed if not set(":*") & set(name)]
    patterns = [{"pattern": pattern} for pattern in (":", *(f"^{name}" for name in families))]
    return {"type": "string", "anyOf": [{"enum": single}, *patterns]}
