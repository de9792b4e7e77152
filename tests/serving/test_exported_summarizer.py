"""A summarizer's export says what the summarizer says, without this package."""

import keras
import numpy as np
import pytest

from tests.applications.summarizers import CONFIGS, make_rows, make_summarizer, write_jsonl
from tests.serving.fresh_process import call_in_fresh_process

pytestmark = pytest.mark.slow

TEXTS = [
    "Yesterday in the morning, Alice likes Qwert in the old town. It was reported by the police.",
    "",
    "Too short",
    "yesterday , bob sees paris in the old town .",
    "Nobody finds 3,000 Zorks \U0001f600 by night; it seems. " * 9,
    b"broken \xff bytes are in here , said bob",
]
# Enough of a push that some words are kept and some are not.
MORE = {"generate": [], "delete": ["decoding.keep_bias=0.4"]}
TOO_LONG = "a word " * 20_000


@pytest.mark.parametrize("method", CONFIGS)
def test_it_answers_as_the_summarizer_where_this_package_cannot_be_imported(method, tmp_path):
    keras.utils.set_random_seed(1)
    summarizer = make_summarizer(CONFIGS[method], ["training.epochs=2", "decoding.num_best=2", *MORE[method]])
    summarizer.fit(write_jsonl(tmp_path / "train.jsonl", make_rows(method, 16)), quiet=True)
    folder = summarizer.export(tmp_path / "summarizer")
    calls = [("serving_default", {"text": batch}) for batch in (TEXTS, [TOO_LONG, TEXTS[0]])]
    together, other = call_in_fresh_process(folder, calls, tmp_path)
    live = summarizer.summarize(TEXTS)
    assert [texts[0].decode() for texts in together["text"]] == [summary.text for summary in live]
    assert other["text"].tolist() == [[b"", b""], together["text"][0].tolist()]
    assert other["status"].tolist() == [b"text too long", b"ok"]
    assert together["status"].tolist()[:3] == [b"ok", b"blank", b"short"]
    assert all(np.isfinite(array).all() for array in together.values() if array.dtype == np.float32)
    for row in (0, 3):
        np.testing.assert_allclose(together["score"][row, 0], live[row].score, rtol=1e-4)
