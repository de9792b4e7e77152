import io
import sys

import pytest

from attention_apps.training import progress
from attention_apps.training.progress import ProgressLine, format_duration


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
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
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
