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
        for number, end in enumerate(ends, 1):
            progress.update(b"some bytes", end, number == len(ends))


def test_a_long_recording_has_a_bar(terminal):
    hear(False, [4.0, 8.0, 9.0])
    assert "s" in terminal.getvalue()


@pytest.mark.parametrize(("quiet", "ends"), [(True, [4.0, 8.0]), (False, [4.0])])
def test_a_short_one_has_none_and_quiet_is_quiet(terminal, quiet, ends):
    hear(quiet, ends)
    assert terminal.getvalue() == ""


def test_it_makes_way_for_another_bar(terminal):
    console = Console(file=terminal, force_terminal=True)
    with console.status("busy"):
        hear(False, [4.0, 8.0])
