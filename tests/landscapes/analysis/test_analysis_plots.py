"""Figures of answers: files are reproducible and complete, and a wrong name is refused."""

import re

import pytest
from analysis_samples import SPACE, write_sample

from autorl.core.types import InputError
from autorl.landscapes import analysis
from autorl.landscapes.analysis.plots import SUFFIXES, save


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    unit = SPACE.hyperparameters["learning_rate"].to_unit
    data = write_sample(
        tmp_path_factory.mktemp("plots") / "a", lambda c: 100 * unit(c["learning_rate"]), configs=24
    )
    return analysis.analyse(data, "values", ["learning_rate"])


def test_a_wrong_file_is_named(answer, tmp_path):
    with pytest.raises(InputError, match=r"ends in .png, .svg, .pdf, .html"):
        save(answer, tmp_path / "a.gif")
    with pytest.raises(InputError, match="no such folder"):
        save(answer, tmp_path / "nowhere" / "a.png")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_replaces_ours_and_no_other(answer, tmp_path, suffix):
    target = tmp_path / f"a{suffix}"
    first = save(answer, target).read_bytes()
    second = save(answer, target).read_bytes()
    if suffix != ".pdf":  # vl-convert numbers its objects anew each time
        assert first == second
    target.write_bytes(b"of somebody else")
    with pytest.raises(InputError, match="is there already"):
        save(answer, target)


def test_a_page_is_complete_and_needs_no_network(answer, tmp_path):
    text = save(answer, tmp_path / "a.html").read_text()
    assert len(text) < 3_000_000
    asked = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:,")', asked)
    assert "<h1>Scores by value of learning_rate</h1>" in text
