"""A study in TensorBoard, read back by TensorBoard's own reader."""

import importlib.util

import pytest
from tracker_studies import SPACE, STUDY, climb, curve_of, rows_of, run_info, sessions, study_info

from autorl import InputError, tune
from autorl.integrations.trackers import TensorBoardTracker

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
)


def read(folder):
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def curve(folder, tag="value"):
    events = read(folder)
    if tag not in events.Tags()["scalars"]:
        return {}
    points = [(point.step, point.value) for point in events.Scalars(tag)]
    assert len(dict(points)) == len(points), "no step stands there twice"
    return dict(points)


def text(folder, tag):
    return read(folder).Tensors(tag)[-1].tensor_proto.string_val[0].decode()


def hyperparameters(folder):
    from tensorboard.plugins.hparams import metadata

    content = read(folder).SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    info = metadata.parse_session_start_info_plugin_data(content)
    fields = {name: value.WhichOneof("kind") for name, value in info.hparams.items()}
    return {name: getattr(info.hparams[name], field) for name, field in fields.items()}


def end(folder):
    from tensorboard.plugins.hparams import api_pb2, metadata

    events = read(folder)
    if metadata.SESSION_END_INFO_TAG not in events.Tags()["tensors"]:
        return None
    content = events.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
    return api_pb2.Status.Name(metadata.parse_session_end_info_plugin_data(content).status)


def test_a_study_of_two_sessions_has_every_run_once(tmp_path):
    study = tmp_path / "s" / "logs" / "trackers" / "tensorboard"

    def callbacks():
        # A kill may come between the record of an end and the word to a callback.
        for path in study.glob("*/*/*.end"):
            path.unlink()
        return [TensorBoardTracker()]

    result = sessions(tmp_path / "s", callbacks)
    rows = rows_of(result)
    folders = {
        study / row["role"] / f"{number}-seed{row['seed']}": row for number, row in rows.items()
    }
    assert {path for path in study.glob("t*/*") if path.is_dir()} == set(folders)
    for folder, row in folders.items():
        assert curve(folder) == curve_of(row)
        assert set(curve(folder, "seen").values()) <= {row["seed"]}
        assert hyperparameters(folder) == {
            "x": pytest.approx(row["params_x"]),
            "seed_role": row["role"],
        }
        assert f"| run | {row['run']} |" in text(folder, "run")
        failed = row["state"] == "crash"
        assert end(folder) == ("STATUS_FAILURE" if failed else "STATUS_SUCCESS")
    # 32-bit floats
    scores = {
        tag: read(study / "result").Scalars(tag)[-1].value
        for tag in read(study / "result").Tags()["scalars"]
    }
    assert scores["result/tuning_score"] == pytest.approx(result.tuning, rel=1e-6)
    assert scores["result/test_score"] == pytest.approx(result.test.value, rel=1e-6)
    assert scores["result/test_iqm_low"] == pytest.approx(result.test.iqm_interval.low, rel=1e-6)
    assert scores["result/gap"] == pytest.approx(result.gap, rel=1e-5)
    assert f"| x | {result.best_params['x']} |" in text(study / "result", "result")
    assert "| study | hills |" in text(study / "result", "study")


def test_a_segment_that_is_trained_again_replaces_what_it_had(tmp_path):
    study = study_info(tmp_path)
    tracker = TensorBoardTracker()
    tracker.on_study(study)
    for step, value in [(10, 1.0), (20, 2.0), (30, 3.0), (20, 5.0)]:
        tracker.on_report(study, run_info(), step, {"value": value})
    folder = tmp_path / "logs" / "trackers" / "tensorboard" / "tuning" / "7-seed1"
    assert curve(folder) == {10: 1.0, 20: 5.0}
    # and once more in a later session, after a kill in the middle of a record
    (last,) = folder.glob("*tfevents*")
    last.write_bytes(last.read_bytes()[:-3])
    later = TensorBoardTracker()
    later.on_study(study)
    later.on_report(study, run_info(start=10), 20, {"value": 6.0})
    later.on_report(study, run_info(start=10), 30, {"value": 7.0})
    assert curve(folder) == {10: 1.0, 20: 6.0, 30: 7.0}
    assert hyperparameters(folder) == {
        "x": 0.25,
        "units": "[64, 64]",
        "kind": "relu",
        "norm": True,
        "seed_role": "tuning",
    }
    assert end(folder) is None, "it goes on"
    assert "parent_run" not in text(folder, "run")
    later.on_report(study, run_info(8, start=10, parent_run=7), 20, {"value": 2.0})
    assert "| parent_run | 7 |" in text(folder.parent / "8-seed1", "run")


def test_many_sessions_are_read_in_their_order(tmp_path):
    """TensorBoard reads files by name, and 10 comes before 9 in those of its own writer."""
    study = study_info(tmp_path)
    for step in range(1, 13):
        tracker = TensorBoardTracker()
        tracker.on_study(study)
        tracker.on_report(study, run_info(start=step - 1), step, {"value": float(step)})
    folder = tmp_path / "logs" / "trackers" / "tensorboard" / "tuning" / "7-seed1"
    assert curve(folder) == {step: float(step) for step in range(1, 13)}


def test_a_directory_holds_many_studies(tmp_path):
    for _ in range(2):
        callbacks = [TensorBoardTracker(tmp_path / "runs")]
        tune(climb, SPACE, callbacks=callbacks, **STUDY)
    names = [path.name for path in (tmp_path / "runs").iterdir()]
    assert len(names) == 2
    assert all(name.startswith("hills-") for name in names)
    with pytest.raises(InputError, match="tensorboard needs a directory: a study in memory"):
        tune(climb, SPACE, callbacks=[TensorBoardTracker()], **STUDY)


def test_a_folder_that_was_removed_is_not_made_again(tmp_path, capsys):
    tracker = TensorBoardTracker()
    tracker.on_study(study_info(tmp_path / "gone"))
    with pytest.raises(Exception, match="gone is gone"):
        tracker.on_report(study_info(tmp_path / "gone"), run_info(), 1, {"value": 1.0})
    assert not (tmp_path / "gone").exists()


def test_a_library_that_is_missing_is_said_in_one_line(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find(name)
    )
    with pytest.raises(InputError, match=r"tensorboard is not installed: .*autorl\[integrations\]"):
        TensorBoardTracker()
