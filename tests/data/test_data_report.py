import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_apps.data.data_report import MAX_LISTED, DataReport, Histogram
from attention_apps.data.manifest import Problem


@given(st.lists(st.integers(0, 10_000) | st.floats(0, 1e4), min_size=1))
def test_a_histogram_counts_every_value(values):
    histogram = Histogram.of(values)
    assert sum(histogram.counts) == len(values)
    assert len(histogram.edges) == len(histogram.counts) + 1 <= 12
    assert histogram.edges[0] == min(values)
    assert histogram.edges[-1] >= max(values)
    assert histogram.median == np.median(values)
    assert histogram.to_text().count("\n") == len(histogram.counts) - 1


def test_whole_numbers_get_bins_of_equal_numbers():
    histogram = Histogram.of([3, 3, 4, 8, 26])
    assert histogram.edges[:3] == (3, 6, 9)
    assert histogram.counts == (3, 1, 0, 0, 0, 0, 0, 1)
    assert histogram.to_text().splitlines()[0].split() == ["3", "to", "5", "3", "█" * 40]


def test_equal_values_share_one_bin():
    assert Histogram.of([2.5, 2.5]).counts == (2,)
    assert Histogram.of([3, 3, 3]).counts == (3,)


@pytest.fixture
def report():
    report = DataReport(rows={"training": 1234}, used={"training": 1200})
    for line in range(30):
        report.add(Problem("missing file", Path("my[red].csv"), line, "there is no file [bold]x.jpg"))
    report.add(Problem("leak", Path("v.csv"), 7, "the source is also in training (line 2)"))
    report.lengths = {"training": {"caption": Histogram.of([1, 2, 2])}}
    report.unknown_rate = {"training": {"caption": 0.0123}}
    report.unknown_tokens = [("zyx", 3)]
    return report


def test_all_problems_are_counted_and_some_listed(report):
    assert report.counts == {"missing file": 30, "leak": 1}
    assert len(report.problems) == MAX_LISTED + 1
    assert report.skipped == 30  # the leak is used


def test_rows_with_unknown_tokens_are_all_listed_and_some_shown():
    report = DataReport(rows={"training": 50}, used={"training": 50})
    for line in range(2, 50):
        report.add(Problem("unknown", Path("a.csv"), line, "`transcript` has tokens that are not in the vocabulary: ?"))
    assert [problem["line"] for problem in report.to_dict()["problems"]] == [*range(2, 50)]
    assert "unknown: … and 43 more" in report.to_text()


def test_the_text_says_what_was_found(report):
    text = report.to_text()
    for part in ("1,234", "1,200", "caption 1.23%", "length of `caption`, median 2, mean 1.667"):
        assert part in text
    assert "missing file: my[red].csv, line 0: there is no file [bold]x.jpg" in text
    assert "missing file: … and 25 more" in text
    rows = [[cell.strip() for cell in line.split("│")] for line in text.splitlines()]
    assert ["", "missing file", "30", "skipped", ""] in rows
    assert ["", "leak", "1", "used", ""] in rows


def test_the_dict_is_fit_for_json(report):
    data = json.loads(json.dumps(report.to_dict()))
    assert data["rows"] == {"training": 1234}
    assert data["counts"]["missing file"] == 30
    assert data["problems"][0] == {
        "kind": "missing file",
        "file": "my[red].csv",
        "line": 0,
        "message": "there is no file [bold]x.jpg",
    }
    assert data["lengths"]["training"]["caption"]["counts"] == [1, 2]
    assert data["unknown_tokens"] == [["zyx", 3]]
