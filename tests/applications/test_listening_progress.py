import io

import pytest
from rich.console import Console

from attention_apps.applications import listening_progress
from attention_apps.applications.listening_progress import ListeningProgress


@pytest.fixture
def terminal(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(listening_progress, "Console", lambda stderr: Console(file=written, force_terminal=True))
    return written


def hear(quiet, ends):
    with ListeningProgress(quiet) as progress:
        for end in ends:
            progress.update(b"some bytes", end)
        progress.end()


def test_a_long_recording_has_a_bar(terminal):
    hear(False, [4.0, 8.0])
    assert "8 s" in terminal.getvalue()


@pytest.mark.parametrize(("quiet", "ends"), [(True, [4.0, 8.0]), (False, [])])
def test_a_short_one_has_none_and_quiet_is_quiet(terminal, quiet, ends):
    hear(quiet, ends)
    assert terminal.getvalue() == ""


def test_each_recording_has_a_bar_of_its_own(terminal):
    with ListeningProgress() as progress:
        progress.update(b"some bytes", 8.0)
        progress.end()
        before = len(terminal.getvalue())
        progress.update(b"other bytes", 3.0)
        progress.end()
        assert "3 s" in terminal.getvalue()[before:]
        assert "8 s" not in terminal.getvalue()[before:]
