import csv
import io
import json
import re
import sys
import warnings

import pytest
import tensorflow as tf

from attention_apps.training import logs
from attention_apps.training.logs import CsvLog, ProgressLine, RunLogs, format_duration
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import make_batches, make_config, make_model, teacher_forced_accuracy


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_have_the_columns_of_the_first(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.write({"step": 1, "loss": 0.123456789, "name, with comma": 2.0})
    log.write({"step": 2, "name, with comma": 1e-9, "loss": 3.0})
    assert read(log.path) == [
        {"step": "1", "loss": "0.123457", "name, with comma": "2"},
        {"step": "2", "loss": "3", "name, with comma": "1e-09"},
    ]


def test_what_came_after_a_checkpoint_is_cut_off(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.truncate_after(5)
    assert not log.path.exists()
    for step in (2, 4, 6):
        log.write({"step": step, "loss": 1.5})
    with log.path.open("a") as file:
        file.write("3,0.")  # the process died here
    log.truncate_after(4)
    log.write({"step": 6, "loss": 2.5})
    assert [(row["step"], row["loss"]) for row in read(log.path)] == [("2", "1.5"), ("4", "1.5"), ("6", "2.5")]


def test_a_table_that_died_in_its_head_begins_anew(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.path.write_text("step,lo")
    log.truncate_after(0)
    log.write({"step": 1, "loss": 2.0})
    assert read(log.path) == [{"step": "1", "loss": "2"}]


@pytest.mark.parametrize("damage", ["x,1.5", "3", "3,1.5,7", "\ufffd\ufffd", ""])
def test_a_damaged_row_is_dropped_with_a_warning_that_names_it(tmp_path, damage):
    log = CsvLog(tmp_path / "log.csv")
    log.path.write_text(f"step,loss\n2,1.5\n{damage}\n4,2.5\n")
    with pytest.warns(UserWarning, match=r"log\.csv, line 3: dropped a damaged row of the log"):
        log.truncate_after(5)
    assert log.path.read_text() == "step,loss\n2,1.5\n4,2.5\n"


@pytest.mark.parametrize("damage", ["no json", "[]", '{"source": 1}', '{"step": "x"}', "7"])
def test_a_damaged_sample_is_dropped_with_a_warning_that_names_it(tmp_path, damage):
    path = tmp_path / "samples.jsonl"
    path.write_text(f'{damage}\n{{"step": 2}}\n')
    with pytest.warns(UserWarning, match=r"samples\.jsonl, line 1: dropped a damaged row of the log"):
        RunLogs(tmp_path).truncate_after(5)
    assert path.read_text() == '{"step": 2}\n'


def test_without_room_for_tensorboard_the_run_continues(tmp_path):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    run_logs = RunLogs(tmp_path)
    with pytest.warns(UserWarning, match="No more TensorBoard events are written to .*tensorboard"):
        run_logs.training(1, 1, {"loss": 2.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_logs.training(2, 1, {"loss": 1.0})
    assert [row["step"] for row in read(tmp_path / "training.csv")] == ["1", "2"]


def test_samples_are_json_lines_in_any_script(tmp_path):
    run_logs, path = RunLogs(tmp_path), tmp_path / "samples.jsonl"
    run_logs.validation(3, 1, {"bleu": 2.0}, [("a.jpg", "ein Häuschen\nim Grünen", "a “dog”")])
    run_logs.validation(6, 2, {"bleu": 3.0}, [("a.jpg", "犬", "x")])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 6, "sou')
    run_logs.truncate_after(3)
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["reference"] == "ein Häuschen\nim Grünen"


def test_a_new_run_forgets_the_old_one(tmp_path):
    run_logs = RunLogs(tmp_path)
    run_logs.training(1, 1, {"loss": 2.0})
    run_logs.validation(1, 1, {"bleu": 2.0}, [("a", "b", "c")])
    run_logs.truncate_after(-1)
    assert list(tmp_path.iterdir()) == []
    run_logs.training(3, 1, {"loss": 1.0})
    run_logs.validation(3, 1, {"bleu": 3.0}, [])
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
    assert {event.step for event in events if event.summary.value} == {3}


def test_a_run_shows_epoch_step_loss_speed_time_left_and_samples(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logs, "SHOW_SECONDS", 0.0)
    monkeypatch.setattr(logs, "PLAIN_SECONDS", 0.0)
    Trainer(make_model(), make_batches(), make_config(epochs=2), tmp_path, validate=teacher_forced_accuracy).fit()
    told = capsys.readouterr().err
    assert len(re.findall(r"epoch [12]/2, step \d/8, loss \d\.\d{3}, [\d,]+ tokens/s, \d+:\d\d left\n", told)) == 8
    assert told.count("accuracy 0.") == 2
    assert told.count("  a source: a text\n    (reference: a reference)\n") == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(monkeypatch, stream, quiet=False):
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine(quiet) as line:
        line.update("epoch 1/3, step 5/30, loss 2.500", 5 / 30, 75)
        line.note("step 5: bleu 3.2 [sic]")
        line.update("epoch 1/3, step 6/30, loss 2.400", 6 / 30, 72)
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines_now_and_then(monkeypatch):
    text = show(monkeypatch, io.StringIO())
    assert text == "epoch 1/3, step 5/30, loss 2.500, 1:15 left\nstep 5: bleu 3.2 [sic]\n"
    monkeypatch.setattr(logs, "PLAIN_SECONDS", 0.0)
    assert show(monkeypatch, io.StringIO()).count("\n") == 3


def test_in_a_terminal_there_is_one_live_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    text = show(monkeypatch, Terminal())
    assert "\x1b[" in text
    assert "step 5: bleu 3.2 [sic]" in text
    assert "loss 2.400, 1:12 left" in text


def test_quiet_is_quiet(monkeypatch):
    assert show(monkeypatch, io.StringIO(), quiet=True) == ""
    assert show(monkeypatch, Terminal(), quiet=True) == ""


@pytest.mark.parametrize(("seconds", "text"), [(-3, "0:00"), (9.9, "0:09"), (75, "1:15"), (7500, "2:05:00")])
def test_durations_are_written_as_clocks_do(seconds, text):
    assert format_duration(seconds) == text
