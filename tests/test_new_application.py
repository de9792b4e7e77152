"""The application of docs/new_application.md works as the page says, from training to the export."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.doc_commands import blocks

PAGE = Path(__file__).parents[1] / "docs" / "new_application.md"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the code of the page defines, once all of it has run."""
    names = {"__name__": "new_application"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("new_application"))
        for number, block in enumerate(blocks(PAGE, "python"), 1):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
        yield names


def test_fit_learns_the_task_and_evaluate_measures_it(names):
    evaluation = names["evaluation"]
    assert len(evaluation.texts) == 100
    assert evaluation.metrics["cer"].score < 0.05


def test_a_loaded_preset_answers_as_the_application_that_saved_it(names):
    words = ["drest", "pets", "desert"]
    before, after = (
        [reversal.text for reversal in application.reverse(words)]
        for application in (names["reverser"], names["loaded"])
    )
    assert before == after == [word[::-1] for word in words]


def test_the_attention_goes_backwards(names):
    reversal = names["loaded"].reverse("desert")
    assert reversal.attention.shape == (6, 6)
    assert np.corrcoef(reversal.attention.argmax(axis=1), np.arange(6))[0, 1] < -0.8


def test_a_bad_word_raises_alone_and_has_an_error_in_a_list(names):
    with pytest.raises(ValueError, match="must have 1 to 12 letters"):
        names["loaded"].reverse("")
    with pytest.raises(TypeError, match="must be a string"):
        names["loaded"].reverse(3)
    bad, good = names["loaded"].reverse(["", "pets"])
    assert "must have 1 to 12 letters" in bad.error
    assert good.text == "step"


def test_the_export_answers_as_the_application_does(names):
    model = tf.saved_model.load(str(names["exported"].folder)).signatures["serving_default"]
    answers = model(word=tf.constant(["desert", "", "pets", "x" * 13]))
    assert answers["text"][:, 0].numpy().tolist() == [b"tresed", b"", b"step", b""]
    assert answers["status"].numpy().tolist() == [b"ok", b"not 1 to 12 letters", b"ok", b"not 1 to 12 letters"]
