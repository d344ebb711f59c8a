"""A study stores a bounded part of a trainer's words: messages, names in messages, logs on its
disk."""

from scripted import Scripted, Toy, full, listed, run, study_with, toy_spec

from autorl.core.plain_text import LONGEST_MESSAGE
from autorl.core.plain_text import listed as listed_names


def messages(study):
    return [text for (text,) in study.store.query("SELECT message FROM segments")]


def test_the_message_of_an_exception_is_cut_in_its_middle(monkeypatch, tmp_path):
    """Five failures with texts of 5 MB made a database of 125 MB."""

    def before(segment):
        if segment.id.startswith("1."):
            raise ValueError("begin " + "x" * 1_000_000 + " end")

    optimizer = Scripted(listed(full(0.2), full(0.7)))
    study = study_with(monkeypatch, toy_spec(), optimizer, Toy(before=before), tmp_path / "study")
    run(study)
    cut = [text for text in messages(study) if text]
    assert cut
    assert all(len(text) == LONGEST_MESSAGE for text in cut)
    assert all(text.startswith("ValueError: begin") and text.endswith(" end") for text in cut)
    size = sum(len(body) for (body,) in study.store.query("SELECT body FROM event"))
    assert size < 100_000


def test_a_message_lists_a_few_of_many_metrics():
    names = [f"metric_{number}" for number in range(100_000)]
    text = listed_names(names)
    assert text.startswith("metric_0, metric_1, ")
    assert text.endswith("metric_19 and 99,980 more")
    assert len(listed_names(["n" * 10_000] * 30)) < 2_000
    assert listed_names(["a", "b"]) == "a, b"
