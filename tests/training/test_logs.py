import csv
import json

import tensorflow as tf

from attention_apps.training.logs import CsvLog, RunLogs, SampleLog


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
    log.cut_after(5)
    assert not log.path.exists()
    for step in (2, 4, 6):
        log.write({"step": step, "loss": 1.5})
    with log.path.open("a") as file:
        file.write("3,0.")  # the process died here
    log.cut_after(4)
    log.write({"step": 6, "loss": 2.5})
    assert [(row["step"], row["loss"]) for row in read(log.path)] == [("2", "1.5"), ("4", "1.5"), ("6", "2.5")]


def test_a_table_that_died_in_its_head_begins_anew(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.path.write_text("step,lo")
    log.cut_after(0)
    log.write({"step": 1, "loss": 2.0})
    assert read(log.path) == [{"step": "1", "loss": "2"}]


def test_samples_are_json_lines_in_any_script(tmp_path):
    log = SampleLog(tmp_path / "samples.jsonl")
    log.write(3, [("a.jpg", "ein Häuschen\nim Grünen", "a “dog”")])
    log.write(6, [("a.jpg", "犬", "x")])
    with log.path.open("a", encoding="utf-8") as file:
        file.write('{"step": 6, "sou')
    log.cut_after(3)
    (line,) = log.path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["reference"] == "ein Häuschen\nim Grünen"


def test_a_new_run_forgets_the_old_one(tmp_path):
    logs = RunLogs(tmp_path)
    logs.training(1, 1, {"loss": 2.0})
    logs.validation(1, 1, {"bleu": 2.0}, [("a", "b", "c")])
    logs.go_on_from(-1)
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]
    logs.training(3, 1, {"loss": 1.0})
    logs.validation(3, 1, {"bleu": 3.0}, [])
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(file))]
    assert {event.step for event in events if event.summary.value} == {3}
