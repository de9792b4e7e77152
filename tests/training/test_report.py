import re

from attention_apps.training import progress, report
from attention_apps.training.trainer import Trainer
from tests.training.tiny_training import make_batches, make_config, make_model, teacher_forced_accuracy


def test_a_run_shows_epoch_step_loss_speed_time_left_and_samples(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "SHOW_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    Trainer(make_model(), make_config(epochs=2), tmp_path, validate=teacher_forced_accuracy).fit(make_batches())
    told = capsys.readouterr().err
    assert len(re.findall(r"epoch [12]/2, step \d/8, loss \d\.\d{3}, [\d,]+ tokens/s, \d+:\d\d left\n", told)) == 8
    assert told.count("accuracy 0.") == 2
    assert told.count("  a source: a text\n    (reference: a reference)\n") == 2
