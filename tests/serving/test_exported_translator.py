"""Exports of translators work without this package."""

import keras
import numpy as np
import pytest

from tests.applications.translators import CONFIGS, PIECES, make_translator
from tests.serving.fresh_process import call_in_fresh_process

pytestmark = pytest.mark.slow

TEXTS = [
    "Anna likes the tree. Bob sees 3,000 dogs \U0001f600!\n\n12:30",
    "",
    b"broken \xff bytes are in here",
    "the dog",
]


@pytest.mark.parametrize("kind", CONFIGS)
def test_it_answers_as_the_application_where_this_package_cannot_be_imported(kind, tmp_path):
    keras.utils.set_random_seed(1)
    translator = make_translator(CONFIGS[kind], ["decoding.num_best=2"], PIECES)
    folder = translator.export(tmp_path / "exported")
    (answers,) = call_in_fresh_process(folder, [("serving_default", {"text": TEXTS})], tmp_path)
    live = translator.translate(TEXTS)
    assert [texts[0].decode() for texts in answers["text"]] == [result.text for result in live]
    assert answers["status"].tolist() == [b"ok", b"blank", b"ok", b"ok"]
    np.testing.assert_allclose(answers["confidence"], [result.confidence for result in live], rtol=1e-4)
