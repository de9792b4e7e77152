import subprocess
import sys

import numpy as np
import pytest

from attention_apps import metrics
from attention_apps.metrics import MetricResult, bleu, bootstrap_interval, sacre_bleu, token_f1, wer
from tests.metrics.corpora import random_corpus

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


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    items = np.random.default_rng(1).normal(5, 2, size=800)
    low, high = bootstrap_interval(MetricResult.mean_of("mean", items), num_samples=4000)
    half_width = 1.96 * items.std() / np.sqrt(800)
    assert low == pytest.approx(items.mean() - half_width, abs=0.02)
    assert high == pytest.approx(items.mean() + half_width, abs=0.02)


@pytest.mark.parametrize("metric", [bleu, sacre_bleu])
def test_a_corpus_metric_is_computed_anew_for_each_draw(metric):
    hypotheses, references = random_corpus(20, 2)
    result = metric(hypotheses, references)
    drawn = np.random.default_rng(0).integers(20, size=20)
    expected = metric([hypotheses[i] for i in drawn], [references[i] for i in drawn]).score
    low, high = bootstrap_interval(result, num_samples=1)
    assert low == high == pytest.approx(expected, abs=1e-9)


def test_statistics_of_the_whole_corpus_give_the_score():
    hypotheses, references = random_corpus(20, 1)
    for metric in (bleu, sacre_bleu, wer, token_f1):
        result = metric(hypotheses, references)
        assert result.combine(result.statistics.sum(axis=0)) == pytest.approx(result.score, abs=1e-12)


def test_the_interval_holds_the_score_and_depends_on_the_seed_only():
    result = wer(*random_corpus(40, 1))
    low, high = bootstrap_interval(result, seed=3)
    assert low < result.score < high
    assert (low, high) == bootstrap_interval(result, seed=3)
    assert (low, high) != bootstrap_interval(result, seed=4)
    narrow_low, narrow_high = bootstrap_interval(result, confidence=0.5, seed=3)
    assert low < narrow_low < narrow_high < high


def test_bad_options_are_refused():
    result = wer(["a"], ["b"])
    with pytest.raises(ValueError, match=r"`confidence` must be between 0 and 1. Received: confidence=95"):
        bootstrap_interval(result, confidence=95)
    with pytest.raises(ValueError, match=r"`num_samples` must be at least 1. Received: num_samples=0"):
        bootstrap_interval(result, num_samples=0)


def test_the_interval_of_a_difference_draws_the_same_items_for_both():
    random = np.random.default_rng(2)
    items = random.normal(5, 2, size=400)
    before = MetricResult.mean_of("mean", items)
    after = MetricResult.mean_of("mean", items + random.normal(0.1, 0.1, size=400))
    low, high = bootstrap_interval(after, baseline=before)
    assert 0.08 < low < 0.1 < high < 0.12  # the two corpora differ far less than their items
    assert bootstrap_interval(before, baseline=before) == (0, 0)
    with pytest.raises(ValueError, match="`baseline` must be of the same items. Received: 1 and 400 items"):
        bootstrap_interval(after, baseline=wer(["a"], ["b"]))
