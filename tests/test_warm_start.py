"""Warm starts: a list, another study, a landscape by rank or by query; what does not fit is said, one line each."""

import copy
import json
import re
from contextlib import closing

import pytest
from refusals import expect_error

from autorl import load_landscape
from autorl.core.types import InputError
from autorl.landscapes import from_study
from autorl.study import Study
from autorl.study.spec import load_spec, thaw

SPACE = {
    "hyperparameters": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
        "kind": {"type": "categorical", "choices": ["a", "b"], "default": "a"},
        "only_b": {"type": "int", "lower": 1, "upper": 9, "default": 3},
        "layers": {"type": "ordinal", "choices": [[16], [16, 16]], "default": [16]},
    },
    "conditions": {"only_b": "kind == b"},
}
FILE = {
    "name": "first",
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.01}},
    "space": SPACE,
    "fidelity": {"steps": 100, "evaluations": 2},
    "budget": {"configurations": 6},
    "seeds": {"tuning": 2, "test": 0},
    "optimizer": "random",
    "executor": {"name": "in_process"},
    "test": {"top": 0},
}


def run(file, folder):
    with closing(Study.create(load_spec(file), folder)) as study:
        study.run()
        rows = study.store.query(
            "SELECT config FROM proposals JOIN configurations USING (config_id) ORDER BY proposal"
        )
        return [study.spec.search_space.config(json.loads(text)) for (text,) in rows]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished study's folder."""
    folder = tmp_path_factory.mktemp("warm") / "first"
    run(FILE, folder)
    return folder


@pytest.fixture(scope="module")
def best(first):
    data = load_landscape(first)
    return [data.config(int(number)) for number in data.top(6)["config_id"]]


def plain(config):
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in config.items()
    }


def test_the_best_of_another_study_come_right_after_the_default(first, best, tmp_path):
    spec = load_spec(FILE | {"warm_start": {"study": str(first), "top": 3}})
    assert spec.starts == [plain(config) for config in best[:3]]
    proposed = run(FILE | {"warm_start": {"study": str(first), "top": 3}}, tmp_path / "second")
    expected = list(dict.fromkeys([spec.search_space.default(), *best[:3]]))
    assert proposed[: len(expected)] == expected


def test_the_study_depends_on_no_other_data(first, best):
    """The frozen file holds the configurations, not the source."""
    spec = load_spec(FILE | {"warm_start": {"study": str(first), "top": 2}})
    text = spec.freeze()
    assert str(first) not in text
    assert thaw(text, "study.yaml").starts == [plain(config) for config in best[:2]]


def test_a_landscape_by_rank_and_by_query(first, best, tmp_path):
    from_study(first, tmp_path / "landscapes", "mine/synthetic/first")
    data = load_landscape(tmp_path / "landscapes" / "mine/synthetic/first")
    where = {"landscape": "mine/synthetic/first"}
    ranked = load_spec(FILE | {"path": str(tmp_path), "warm_start": where | {"top": 1}})
    assert ranked.starts == [plain(best[0])]
    query = "SELECT config_id, x FROM configs WHERE kind = 'b' ORDER BY x DESC"
    queried = load_spec(
        FILE | {"path": str(tmp_path), "warm_start": where | {"sql": query, "top": 2}}
    )
    expected = [data.config(row[0]) for row in data.sql(query).fetchall()[:2]]
    assert expected
    assert queried.starts == [plain(config) for config in expected]


def narrow():
    """The space with a smaller range of x, without `layers`."""
    space = copy.deepcopy(SPACE)
    space["hyperparameters"]["x"] |= {"upper": 0.6}
    del space["hyperparameters"]["layers"]
    return space


def test_each_misfit_of_a_source_has_a_line(first):
    with pytest.raises(InputError) as caught:
        load_spec(FILE | {"space": narrow(), "warm_start": {"study": str(first), "top": 3}})
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("warm_start: configuration ")
        assert (
            " of studies/synthetic/first.layers: unknown hyperparameter; known: x, kind, only_b"
            in line
        )


def test_misfits_of_a_source_may_be_skipped(first, best):
    space = copy.deepcopy(SPACE)
    space["hyperparameters"]["x"] |= {"upper": 0.6}
    source = {"study": str(first), "top": 6, "misfits": "skip"}
    spec = load_spec(FILE | {"space": space, "warm_start": source})
    fitting = [plain(config) for config in best if config["x"] <= 0.6]
    assert 0 < len(fitting) < 6
    assert spec.starts == fitting
    with pytest.raises(InputError, match="unknown hyperparameter"):
        load_spec(FILE | {"space": narrow(), "warm_start": source})


def test_each_misfit_of_a_list_has_a_line_with_its_place(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "trainer: synthetic\nspace: {hyperparameters: {x: {type: float, lower: 0.0, upper: 1.0}}}\n"
        "fidelity: {steps: 10}\nbudget: {configurations: 2}\n"
        "warm_start:\n- {x: 0.5}\n- {x: 3.0}\n- {y: 1}\n"
    )
    with pytest.raises(InputError) as caught:
        load_spec(file)
    assert str(caught.value).splitlines() == [
        f"{file}:7: warm_start[1].x: 3.0 is outside [0.0, 1.0];",
        f"{file}:8: warm_start[2].y: unknown hyperparameter; known: x",
    ]


@pytest.mark.parametrize(
    ("warm_start", "message"),
    [
        (
            {"study": "nowhere"},
            "warm_start: no landscape or study 'nowhere': give an id or a folder",
        ),
        ({}, "warm_start: needs exactly one of study, landscape, zoo, card"),
        ({"study": "a", "landscape": "b"}, "warm_start: needs exactly one of study, landscape"),
        ({"study": "a", "tops": 3}, "warm_start.tops: unknown key 'tops'; did you mean 'top'?"),
        ({"study": "a", "top": 0}, "warm_start.top: should be greater than or equal to 1"),
        ({"study": "a", "misfits": "keep"}, "warm_start.misfits: should be 'refuse' or 'skip'"),
        ("a", "warm_start: should be a valid list"),
    ],
)
def test_what_is_wrong_is_one_line(warm_start, message):
    expect_error(re.escape(message), load_spec, FILE | {"warm_start": warm_start})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT x FROM configs", "warm_start.sql: the query needs a column config_id; it has x"),
        ("SELECT config_id FROM configs WHERE x > 2", "warm_start.sql: the query finds no conf"),
        ("SELECT config_id FROM nothing", "warm_start.sql: "),
        ("DROP TABLE configs", "warm_start.sql: "),
        ("SELECT 4711 AS config_id", "no configuration 4711 in studies/synthetic/first"),
    ],
)
def test_a_wrong_query_is_one_line(first, sql, message):
    expect_error(
        re.escape(message), load_spec, FILE | {"warm_start": {"study": str(first), "sql": sql}}
    )
