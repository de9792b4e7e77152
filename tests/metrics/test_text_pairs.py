import subprocess
import sys

import pytest

from attention_apps import metrics

ALL = [
    metrics.bleu,
    metrics.sacre_bleu,
    metrics.cider,
    metrics.meteor,
    metrics.rouge,
    metrics.wer,
    metrics.cer,
]
ALL += [metrics.token_f1]
each_metric = pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.__name__)


@each_metric
def test_bad_pairs_are_refused(metric):
    with pytest.raises(ValueError, match=r"must have the same length. Received: 2 hypotheses and 1 references"):
        metric(["a", "b"], ["a"])
    with pytest.raises(ValueError, match=r"`hypotheses` must hold at least one item|`reference_corpus` must hold"):
        metric([], [])
    with pytest.raises(ValueError, match=r"`references\[1\]` must not be empty or blank. Received: \[\]"):
        metric(["a", "b"], [["a"], []])
    with pytest.raises(ValueError, match=r"`references\[0\]` must not be empty or blank. Received: ' '"):
        metric(["a"], [" "])


@each_metric
def test_anything_but_lists_of_strings_is_refused(metric):
    with pytest.raises(TypeError, match=r"`hypotheses` must be a list of strings. Received one string"):
        metric("abc", ["a", "b", "c"])
    with pytest.raises(TypeError, match=r"`references` must be a list. Received one string: 'a'"):
        metric(["a"], "a")
    with pytest.raises(TypeError, match=r"`hypotheses\[1\]` must be a string. Received: None"):
        metric(["a", None], ["a", "b"])


@each_metric
def test_results_have_the_same_form(metric):
    result = metric(["a dog", "", "ein Käse 🙂"], [["a dog"], ["b"], ["ein Käse"]])
    assert isinstance(result, metrics.MetricResult)
    assert isinstance(result.score, float)
    assert result.items.shape == (3,)
    assert result.statistics.shape[0] == 3
    with pytest.raises(AttributeError):
        result.score = 1.0


def test_importing_the_package_imports_no_metric():
    program = "import sys, attention_apps.metrics; assert not {'nltk', 'sacrebleu', 'jiwer'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_names_stay_functions_after_their_modules_are_imported():
    for name in metrics.__all__:
        getattr(metrics, name)
        assert callable(getattr(metrics, name))
    with pytest.raises(AttributeError, match="accuracy"):
        _ = metrics.accuracy
