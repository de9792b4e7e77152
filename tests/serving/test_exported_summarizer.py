"""Exports of summarizers and compressors work without this package."""

import keras
import numpy as np
import pytest

from tests.applications.summarizers import WORDS, make_compressor, make_summarizer
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
TOO_LONG = "a word " * 20_000


@pytest.mark.parametrize("make", [make_summarizer, make_compressor])
def test_it_answers_as_the_application_where_this_package_cannot_be_imported(make, tmp_path):
    keras.utils.set_random_seed(1)
    application = make(overrides=["decoding.num_best=2"], words=WORDS)
    folder = application.export(tmp_path / "exported")
    calls = [("serving_default", {"text": batch}) for batch in (TEXTS, [TOO_LONG, TEXTS[0]])]
    together, other = call_in_fresh_process(folder, calls, tmp_path)
    live = list(application.run(TEXTS))
    assert [texts[0].decode() for texts in together["text"]] == [result.text for result in live]
    assert other["text"].tolist() == [[b"", b""], together["text"][0].tolist()]
    assert other["status"].tolist() == [b"text too long", b"ok"]
    assert together["status"].tolist()[:3] == [b"ok", b"blank", b"short"]
    assert together["unsure"].tolist() == [result.unsure for result in live]
    for row in (0, 3):
        np.testing.assert_allclose(together["score"][row, 0], live[row].score, rtol=1e-4)
        np.testing.assert_allclose(together["confidence"][row], live[row].confidence, rtol=1e-4)
