"""Each promise of docs/security.md names the test that holds it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")]


def test_every_promise_names_tests_that_exist():
    promises = [row for row in ROWS if not row.startswith("| promise")]
    assert len(promises) > 20
    for row in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert tests, row
        assert all("\ndef test_" in (ROOT / test).read_text() for test in tests), row
