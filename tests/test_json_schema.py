"""What the schema of a study file accepts is what reading it accepts, as far as form goes."""

import json
import random
import re
from pathlib import Path

import pytest

from autorl import optimizers
from autorl.core import json_schema
from autorl.core.plain_values import plain
from autorl.core.types import InputError
from autorl.landscapes.manifest import Manifest
from autorl.optimizers.registry import named_of_kind
from autorl.space import load_space, read_document
from autorl.space.json_schema import definitions as of_spaces
from autorl.space.yaml_format import find_space, space_names
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.study.spec.json_schema import study_schema

jsonschema = pytest.importorskip("jsonschema", reason="needs the extra dev")

ROOT = Path(__file__).parents[1]
SPACES = {
    "population/ppo-small": "CartPole-v1",
    "population/dqn-small": "CartPole-v1",
    "population/a2c": "CartPole-v1",
    "population/sac-small": "Pendulum-v1",
}
SMALL = {"learning_rate": "log(1e-5, 1e-2)", "gamma": [0.9, 0.99]}
CHANGEABLE = {
    "gamma": {"type": "float", "lower": 0.9, "upper": 0.999, "changeable": True},
    "learning_rate": {"type": "float", "lower": 1e-5, "upper": 0.01, "changeable": True},
}
ALTERNATIVES = {
    "seed": [0, 7, 2**40],
    "note": ["", "for the paper"],
    "seeds": [{"tuning": 2, "test": 4}, {"tuning": [0, 1, 2], "test": [100, 101]}],
    "evaluation": [{"rule": "t"}, {"aggregate": "cvar(0.5)"}],
    "objective": [{"reduce": "best"}, [{"metric": "eval_length", "direction": "minimize"}]],
    "constraints": [[{"metric": "peak_memory_mb", "max": 4000}]],
    "fidelity": [{"steps": 1e5}, {"steps": 65536, "evaluations": 4, "episodes": 8}],
    "budget": [{"runs": 48.5}, {"configurations": 16, "target": 400}, {"hours": 0.5}],
    "parallelism": [1, 4],
    "asynchronous": [True, False],
    "executor": [{"workers": 2}, {"name": "slurm", "time": "4:00:00", "sbatch": {"qos": "high"}}],
    "resources": [{"cpu": 2, "memory_gb": 1.5}, None],
    "failures": [{"penalty": -100, "retries": 0}, {"penalty": "worst"}],
    "limits": [{"disk_gb": 5}, {}],
    "test": [{"top": 1, "baseline": False}],
    "keep": [{"checkpoints": "none"}],
    "landscape": [{"id": "mine/ppo/CartPole-v1", "bounds": [0, None], "licence": "CC0"}],
    "warm_start": [[]],
}
OPEN = {"kwargs", "sbatch", "default", "value", "conditions", "forbidden", "constants"}
"""Keys below which no mistake is made: trainer, cluster and rules of the space tell what is wrong."""
TEXTS = {
    "note",
    "metric",
    "id",
    "licence",
    "extends",
    "environment",
    "aggregate",
    "reduce",
    "space",
}
"""Text that is parsed, or names what lies elsewhere."""
# Refusals that are not of form: of what several keys say together, or of what lies elsewhere.
NOT_OF_FORM = re.compile(
    "unknown hyperparameter|is not an environment|no environment|no search space|"
    "at least one tuning seed|is less than one proposal|the log scale needs|is not among the choices|"
    "unknown metric|upper must be greater|is outside|no configuration satisfies|never does in|"
    "in both tuning and test|can only be compared|expected a value such as|default configuration"
)


@pytest.fixture(scope="module")
def study():
    return validator(*study_schema())


def validator(content, definitions):
    schema = json.loads(json.dumps(json_schema.whole("test", content, definitions)))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def refusal(content):
    """Say why `autorl tune --dry-run` refuses a study file, or nothing."""
    try:
        spec = load_spec(json.loads(json.dumps(content)))
        check(spec, trainer_loader(spec))
    except InputError as error:
        return str(error)
    return ""


def draw(rng):
    """Make a study file that is accepted."""
    name = rng.choice(sorted(SPACES))
    chosen = rng.choice([name for name in optimizers.names() if name != "transfer"])
    narrowed = {"extends": name, "hyperparameters": {"learning_rate": "log(1e-4, 1e-3)"}}
    spaces = [name, SMALL, narrowed, load_space(name).to_dict()]
    moving = chosen in named_of_kind("population", "phased_design", "schedule")
    options = {
        item.name: item.default
        for item in optimizers.describe(chosen).options
        if item.default is not None and not item.help.startswith("with stop")
    }
    study = {
        "trainer": name.partition("-")[0],
        "environment": rng.choice([SPACES[name], {"id": SPACES[name], "kwargs": {}}]),
        "space": CHANGEABLE if moving else rng.choice(spaces),
        "fidelity": {"steps": 20000},
        "optimizer": rng.choice([chosen, {"name": chosen, **options}]),
        "budget": {"runs": 96},
    }
    for key in rng.sample(sorted(ALTERNATIVES), rng.randint(0, 6)):
        study[key] = rng.choice(ALTERNATIVES[key])
    return plain(study)


def places(value, path=()):
    """Yield the path of every value that a file alone can tell to be wrong."""
    if path and path[-1] in OPEN:
        return
    yield path
    for key, part in value.items() if isinstance(value, dict) else ():
        yield from places(part, (*path, key))
    for number, part in enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, number))


def spoil(study, rng):
    """Make a mistake of form in a study file: in a key, a type, a number or a name."""
    *above, last = rng.choice([*places(study)][1:])
    parent = study
    for key in above:
        parent = parent[key]
    old = parent[last]
    if rng.random() < 0.3 and isinstance(last, str):
        parent[last[:-1] + "_" + last[-1]] = parent.pop(last)
    elif isinstance(old, int | float) and rng.random() < 0.5:
        parent[last] = rng.choice([-1, 0, 0.5, 10**17])
    elif isinstance(old, str) and last not in TEXTS and rng.random() < 0.5:
        parent[last] = f"{old}x"
    else:
        parent[last] = rng.choice([None, True, "word", 3, [], {}, {"word": 3}, ["word"]])


def compare(study, number):
    """Compare schema and dry run on a file; return whether a mistake in it is of form."""
    rng = random.Random(number)
    file = draw(rng)
    if number % 4:
        spoil(file, rng)
    why = refusal(file)
    assert not why or number % 4, why
    if NOT_OF_FORM.search(why):
        return False
    problem = next(study.iter_errors(file), None)
    assert (problem is None) == (why == ""), (file, why, problem)
    return True


@pytest.mark.parametrize("part", range(20))
def test_a_thousand_files_are_refused_by_both_or_by_none(study, part):
    counts = [compare(study, number) for number in range(50 * part, 50 * part + 50)]
    assert sum(counts) >= 40  # few mistakes are looked away from


def test_what_a_dry_run_refuses_for_its_form_does_not_validate(study):
    assert sum(compare(study, number) for number in range(1000, 1005)) >= 3


def test_files_that_come_with_the_package_validate(study):
    space = validator({"$ref": "#/definitions/space"}, of_spaces())
    names = space_names()
    assert len(names) > 50
    for name in names:
        space.validate(read_document(find_space(name)).data)
    known = json_schema.definitions(Manifest)
    manifest = validator(known["Manifest"], known)
    for path in (ROOT / "landscapes").rglob("manifest.json"):
        manifest.validate(json.loads(path.read_text("utf-8")))
    files = [path for path in (ROOT / "examples").rglob("*.yaml") if "plugin" not in path.parts]
    contents = [read_document(path).data for path in files]
    studies = [content for content in contents if "budget" in content]
    assert len(studies) > 10
    for content in studies:
        study.validate(content)


def test_every_key_has_a_sentence(study):
    manifest = json_schema.definitions(Manifest)

    def told(schema, path=""):
        for name, value in schema.get("properties", {}).items():
            if not (value.get("description") or value.get("$ref")):
                yield f"{path}.{name}"

    places = {"study": study.schema, **study.schema["definitions"], **manifest}
    assert [key for place, schema in places.items() for key in told(schema, place)] == []
