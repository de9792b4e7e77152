"""The state of a search; language models, a CTC-like scorer and ensembles, against brute force."""

import itertools
import math
import time

import numpy as np
import pytest
from keras import ops

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.scorers import (
    NgramModel,
    Scorer,
    SplitState,
    as_tensors,
    ensemble_state,
    ensemble_step,
    largest_gain,
    repeat_state,
)
from tests.decoding.fake_models import (
    END,
    START,
    FakeModel,
    assert_found,
    enumerate_all,
    greedy_search,
    log_softmax,
    narrow_search,
)


def test_rows_are_repeated_one_after_the_other():
    assert np.array(repeat_state({"hidden": ops.convert_to_tensor([3, 5])}, 2)["hidden"]).tolist() == [3, 3, 5, 5]


def test_what_a_step_hands_back_untouched_is_told_from_what_changes():
    before, _ = as_tensors(
        {"keys": np.ones((2, 4)), "cell": {"hidden": np.zeros((2, 3)), "mask": np.ones((2, 4), "bool")}}
    )
    after = {"keys": before["keys"], "cell": {"hidden": before["cell"]["hidden"] + 1, "mask": before["cell"]["mask"]}}
    split = SplitState(before, after, copies=3)
    (hidden,) = split.moving(after)
    assert hidden is after["cell"]["hidden"]
    joined = split.join([repeat_state({"hidden": hidden}, 3)["hidden"]])
    assert tuple(joined["keys"].shape) == (6, 4)
    assert tuple(joined["cell"]["mask"].shape) == (6, 4)
    assert tuple(joined["cell"]["hidden"].shape) == (6, 3)
    assert split.join([hidden])["keys"] is joined["keys"]


def test_what_is_there_once_per_item_is_not_repeated():
    before, _ = as_tensors(
        {"z": {"per_item": {"b": np.ones((2, 4)), "a": np.ones((2, 5))}}, "hidden": np.array([3, 5])}
    )
    repeated = repeat_state(before, 2)
    assert np.array(repeated["hidden"]).tolist() == [3, 3, 5, 5]
    assert all(repeated["z"]["per_item"][name] is before["z"]["per_item"][name] for name in ("a", "b"))
    joined = SplitState(before, {**before, "hidden": before["hidden"] + 1}, copies=2).join([repeated["hidden"]])
    assert all(joined["z"]["per_item"][name] is before["z"]["per_item"][name] for name in ("a", "b"))
    with pytest.raises(ValueError, match=r"must return entries below 'per_item' unchanged\. Received: changed"):
        SplitState(before, {**before, "z": {"per_item": {"b": before["z"]["per_item"]["b"] + 1, "a": 0}}}, copies=2)


def test_a_state_has_an_entry_and_every_entry_a_batch_axis():
    assert as_tensors({"hidden": np.zeros((3, 2))})[1] == 3
    with pytest.raises(
        ValueError, match=r"`state` must hold a tensor, whose first axis is the batch. Received: state=\{\}"
    ):
        as_tensors({})
    with pytest.raises(ValueError, match=r"Every entry of `state` must have a batch axis\. Received: shapes"):
        as_tensors({"position": np.array(0), "hidden": np.zeros((3, 2))})


def test_a_step_that_changes_the_structure_of_its_state_is_an_error():
    before, _ = as_tensors({"hidden": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="`step` must return a state with the structure of the one it was given"):
        SplitState(before, {"hidden": before["hidden"], "cell": before["hidden"]}, copies=2)


VOCABULARY, FRAMES = 4, 6
MODEL = FakeModel.random(7, VOCABULARY)
TRIGRAM = np.random.default_rng(3).normal(size=(VOCABULARY, VOCABULARY, VOCABULARY)).astype("float32")
EMISSIONS = np.random.default_rng(4).dirichlet(np.ones(VOCABULARY), (2, FRAMES)).astype("float32")


def trigram_scorer(weight):
    """Keeps the token before the last one."""

    def call(token, state):
        table = ops.reshape(ops.convert_to_tensor(TRIGRAM), (-1, VOCABULARY))
        return ops.take(table, state["before"] * VOCABULARY + token, axis=0), {"before": token}

    return Scorer(call, {"before": np.full(2, START, "int32")}, weight)


def trigram_scores(item, prefix):
    before, last = (START, START, *prefix)[-2:]
    return TRIGRAM[before, last]


class AlignmentScorer:
    """The probability that the tokens come in this order at some frames, each after the one before.

    `ending[s]` is the probability of the prefix with its last token at frame s: the state of a hypothesis, which can
    only be computed once its last token is known.
    """

    def __call__(self, token, state):
        emitted = ops.take_along_axis(state["emissions"], ops.reshape(token, (-1, 1, 1)), axis=2)[..., 0]  # (R, S)
        longer = emitted * earlier(state["ending"])
        ending = ops.where(ops.expand_dims(token == START, 1), state["ending"], longer)
        extended = ops.sum(state["emissions"] * ops.expand_dims(earlier(ending), -1), axis=1)  # (R, V)
        scores = ops.log(extended) - ops.log(ops.sum(ending, axis=1, keepdims=True))
        scores = ops.where(ops.arange(VOCABULARY) == END, 0.0, scores)
        return scores, {"emissions": state["emissions"], "ending": ending}


def earlier(ending):
    return ops.cumsum(ending, axis=1) - ending


def alignment_scorer(weight):
    """Before the first token everything is at frame 0; start is banned, so it is never a token of its own."""
    ending = np.zeros((2, FRAMES), "float32")
    ending[:, 0] = 1.0
    return Scorer(AlignmentScorer(), {"emissions": EMISSIONS, "ending": ending}, weight)


def alignment_scores(item, prefix):
    """Goes through all choices of frames."""

    def probability(tokens):
        frames = itertools.combinations(range(1, FRAMES), len(tokens)) if len(tokens) else [()]
        return sum(math.prod(EMISSIONS[item, s, t] for s, t in zip(choice, tokens)) for choice in frames)

    total = probability(prefix)
    with np.errstate(divide="ignore"):
        return np.array([0.0 if t == END else np.log(probability((*prefix, t)) / total) for t in range(VOCABULARY)])


def found(options, *scorers):
    return beam_search(MODEL.step, MODEL.init_state([0, 1]), options, scorers=scorers)


def wanted(search, options, *scorers):
    return [search(MODEL, item, options, scorers) for item in range(2)]


@pytest.mark.parametrize(("beam_size", "search"), [(1, greedy_search), (2, narrow_search), (110, enumerate_all)])
def test_a_language_model_takes_part_in_the_search(beam_size, search):
    options = DecodingOptions(beam_size=beam_size, max_length=4, length_penalty=0.5)
    assert_found(found(options, trigram_scorer(0.7)), wanted(search, options, (trigram_scores, 0.7)))


@pytest.mark.parametrize(("beam_size", "search"), [(1, greedy_search), (2, narrow_search), (110, enumerate_all)])
def test_a_scorer_whose_state_depends_on_the_chosen_token_follows_it(beam_size, search):
    options = DecodingOptions(beam_size=beam_size, max_length=4, banned_tokens=(START,))
    assert_found(found(options, alignment_scorer(1.3)), wanted(search, options, (alignment_scores, 1.3)))


def test_scorers_add_up_and_leave_the_models_log_probabilities_alone():
    options = DecodingOptions(beam_size=110, max_length=3, num_best=3, banned_tokens=(START,), repetition_penalty=1.2)
    result = found(options, trigram_scorer(0.4), alignment_scorer(0.6), trigram_scorer(0.0))
    scorers = (trigram_scores, 0.4), (alignment_scores, 0.6)
    assert_found(result, wanted(enumerate_all, options, *scorers))


def test_a_scorer_without_state_is_a_function_of_the_last_token():
    table = np.random.default_rng(5).normal(size=(VOCABULARY, VOCABULARY)).astype("float32")
    scorer = Scorer(lambda token, state: (ops.take(ops.convert_to_tensor(table), token, axis=0), state))
    options = DecodingOptions(beam_size=3, max_length=4)
    expected = wanted(narrow_search, options, (lambda item, prefix: table[(START, *prefix)[-1]], 1.0))
    assert_found(found(options, scorer), expected)


def steps_taken(*scorers):
    """How many steps a search takes in which the end is almost certain from the second token on."""
    taken = []

    def step(token, state):
        taken.append(token)
        logits = ops.where(ops.arange(4) == ops.where(state["age"] == 0, 3, END), 9.0, 0.0)
        return logits, {"age": state["age"] + 1}

    beam_search(step, {"age": np.zeros((2, 1), "int32")}, DecodingOptions(beam_size=2, max_length=12), scorers)
    return len(taken)


@pytest.mark.usefixtures("eager")
def test_the_search_stops_early_only_if_the_scorers_are_bounded():
    bonus = np.array([0.0, 0.0, -1.0, 0.0], "float32")

    def call(token, state):
        return ops.zeros((ops.shape(token)[0], 1)) + bonus, state

    assert steps_taken() == 2
    assert steps_taken(Scorer(call, upper_bound=0.0)) == 2
    assert steps_taken(Scorer(call)) == 12


def test_the_most_a_token_can_gain_is_the_weighted_sum_of_the_bounds():
    def call(token, state):
        return token, state

    assert largest_gain([]) == 0.0
    assert largest_gain([Scorer(call, upper_bound=0.0), Scorer(call, weight=2.0, upper_bound=0.5)]) == 1.0
    assert largest_gain([Scorer(call, weight=0.0)]) == 0.0
    assert largest_gain([Scorer(call)]) == math.inf
    assert largest_gain([Scorer(call, weight=-1.0, upper_bound=0.0)]) == math.inf


@pytest.mark.parametrize("bound", [0.0, 1.5])
def test_bounded_scorers_find_what_unbounded_ones_find(bound):
    table = log_softmax(np.random.default_rng(6).normal(size=16)).reshape(4, 4).astype("float32") + bound

    def call(token, state):
        return ops.take(ops.convert_to_tensor(table), token, axis=0), state

    options = DecodingOptions(beam_size=3, max_length=6, num_best=2, length_penalty=0.8)
    free, bounded = found(options, Scorer(call)), found(options, Scorer(call, upper_bound=bound))
    for one, other in zip(free, bounded):
        np.testing.assert_array_equal(one, other)


MODELS = [FakeModel.random(seed) for seed in (1, 2)]


class Mixture:
    """The two models as one, for the references."""

    def __init__(self, weights, average):
        self.weights, self.average = weights, average

    def after(self, item, prefix):
        (first, coverage), (second, other_coverage) = (model.after(item, prefix) for model in MODELS)
        log_probs = np.stack([log_softmax(first), log_softmax(second)])
        weights = np.array(self.weights)[:, None]
        if self.average == "log":
            mixed = (weights * log_probs).sum(axis=0)
        else:
            mixed = np.log((weights * np.exp(log_probs)).sum(axis=0))
        return mixed, (coverage + other_coverage) / 2


@pytest.mark.parametrize("average", ["log", "probability"])
@pytest.mark.parametrize(("weights", "shares"), [(None, (0.5, 0.5)), ((3, 1), (0.75, 0.25))])
def test_an_ensemble_searches_the_mixed_distribution(average, weights, shares):
    options = DecodingOptions(beam_size=40, max_length=3, num_best=2, coverage_penalty=0.3)
    step = ensemble_step([model.step for model in MODELS], weights, average)
    state = ensemble_state([model.init_state([0, 1]) for model in MODELS])
    expected = [enumerate_all(Mixture(shares, average), item, options) for item in range(2)]
    assert_found(beam_search(step, state, options), expected)


def test_an_ensemble_of_one_is_that_model():
    step, state = ensemble_step([MODELS[0].step]), ensemble_state([MODELS[0].init_state([0, 1])])
    options = DecodingOptions(beam_size=2, max_length=4)
    alone = beam_search(MODELS[0].step, MODELS[0].init_state([0, 1]), options)
    together = beam_search(step, state, options)
    assert np.array_equal(alone.token_ids, together.token_ids)
    np.testing.assert_allclose(alone.scores, together.scores, rtol=1e-5)


def test_untouched_entries_stay_untouched_and_without_coverage_there_is_none():
    state = ensemble_state([{"keys": np.ones((2, 3))}, {"keys": np.zeros((2, 5))}])
    assert sorted(state) == ["model_0", "model_1"]
    _, after = ensemble_step([lambda token, state: (np.zeros((2, 4)), state)] * 2)(np.zeros(2), state)
    assert after["model_1"]["keys"] is state["model_1"]["keys"]


def test_wrong_arguments_of_an_ensemble_are_named():
    with pytest.raises(ValueError, match=r"`average` must be one of log, probability\. Received: average='mean'"):
        ensemble_step([math.log], average="mean")
    with pytest.raises(
        ValueError, match=r"`weights` must be 1 positive numbers, one for each step\. Received: weights="
    ):
        ensemble_step([math.log], weights=(1, 2))
    with pytest.raises(ValueError, match="`steps` must hold at least one step"):
        ensemble_step([])


TEXTS = [[4, 5, 6], [4, 5], [5, 4, 5, 6], [6]]
V = 7


def witten_bell(history, token, order):
    """The formula, straight from the counts."""
    history = history[len(history) - min(len(history), order - 1) :]
    shorter = 1 / V if not history else witten_bell(history[1:], token, len(history))
    followers = [
        tokens[place]
        for tokens in ((1, *text, 2) for text in TEXTS)
        for place in range(1, len(tokens))
        if place >= len(history) and tokens[place - len(history) : place] == tuple(history)
    ]
    if not followers:
        return shorter
    kinds = len(set(followers))
    return (followers.count(token) + kinds * shorter) / (len(followers) + kinds)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_probabilities_are_those_of_the_formula(order):
    model = NgramModel.fit(TEXTS, V, order)
    for text in ([], [4], [5, 6], [6, 6, 4, 5], [4, 5, 6, 4]):
        tokens = (1, *text, 2)
        expected = sum(np.log(witten_bell(tokens[:place], tokens[place], order)) for place in range(1, len(tokens)))
        assert model.log_prob(text) == pytest.approx(expected, abs=1e-5)


def test_each_row_is_a_distribution():
    model = NgramModel.fit(TEXTS, V, 3)
    np.testing.assert_allclose(np.exp(model.log_probs).sum(axis=1), 1, rtol=1e-5)


def test_the_text_form_is_the_same_model():
    model = NgramModel.fit(TEXTS, V, 3)
    again = NgramModel.from_text(model.to_text(), V)
    np.testing.assert_array_equal(again.log_probs, model.log_probs)
    np.testing.assert_array_equal(again.successors, model.successors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line"),
        ("x" * 10**6, "first line"),
        ("n-gram counts\n1 2\n1 x\n", "Line 3"),
        ("n-gram counts\n1\n", "Line 2"),
        ("n-gram counts\n1 ²\n", "Line 2"),
        (f"n-gram counts\n{10**15} 4\n", "Line 2 of the n-gram counts must be two or more numbers of at most 15"),
        (f"n-gram counts\n{'x' * 500}\n", "Line 2"),
        ("n-gram counts\n1 9\n", "tokens from 0 to 6"),
        (f"n-gram counts\n1 {'4 ' * 33}\n", "histories of fewer than 32 tokens. Received: 32"),
    ],
)
def test_a_bad_text_form_is_refused_with_a_short_message(text, message):
    with pytest.raises(ValueError, match=message) as error:
        NgramModel.from_text(text, V)
    assert len(str(error.value)) < 160


def test_a_long_line_is_refused_at_once():
    """Its suffixes would all be looked up as histories, which takes time quadratic in its length."""
    text = "n-gram counts\n1 4 5\n1" + " 4" * 150_000 + "\n"
    start = time.perf_counter()
    with pytest.raises(ValueError, match="Line 3 of the n-gram counts must have at most 528 characters"):
        NgramModel.from_text(text, V)
    assert time.perf_counter() - start < 1


def test_a_small_file_cannot_ask_for_a_large_table():
    lines = "\n".join(f"1 {token} 4" for token in range(500))
    with pytest.raises(ValueError, match="fewer than 500 histories for this vocabulary. Received: 500 histories"):
        NgramModel.from_text(f"n-gram counts\n{lines}\n", 100_000)


def test_more_ngrams_than_load_in_seconds_are_refused_at_once():
    start = time.perf_counter()
    with pytest.raises(ValueError, match="n-gram counts must have at most 200,000 n-grams"):
        NgramModel.from_text("n-gram counts\n" + "1 4 5\n" * 5_000_000, V)
    assert time.perf_counter() - start < 1
    counts = {(first, second): dict.fromkeys(range(500), 1) for first in range(21) for second in range(20)}
    with pytest.raises(ValueError, match="`counts` must have at most 200,000 n-grams. Received: 210,000. Lower the or"):
        NgramModel(counts, 500)


@pytest.mark.slow
def test_the_most_ngrams_load_in_seconds():
    lines = "".join(f"1 {n % 26} {n // 26 % 26} {n // 676 % 26} {n // 17_576} 2\n" for n in range(199_999))
    start = time.process_time()
    assert len(NgramModel.from_text(f"n-gram counts\n{lines}", 30).log_probs) == 200_000
    assert time.process_time() - start < 10


def test_histories_whose_suffixes_are_missing_use_the_longest_known_one():
    model = NgramModel({(4, 5, 6): {4: 3}, (6,): {5: 1}}, V)
    assert model.log_probs.shape == (3, V)
    expected = (3 + np.exp(model.log_probs[1, 4])) / (3 + 1)
    assert np.exp(model.log_probs[2, 4]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("order", "limit"), [(0, "at least 1"), (33, "at most 32")])
def test_an_order_out_of_range_is_refused(order, limit):
    with pytest.raises(ValueError, match=f"`order` must be {limit}. Received: order={order}"):
        NgramModel.fit(TEXTS, V, order)


def test_a_search_with_it_finds_the_text_that_it_likes_best():
    model = NgramModel.fit(TEXTS, V, 3)
    options = DecodingOptions(beam_size=40, max_length=4, num_best=3, banned_tokens=(0, 1, 3))

    def step(token, state):
        return ops.zeros((ops.shape(token)[0], V)), state

    state = {"nothing": ops.zeros((2, 1))}
    result = beam_search(step, state, options, scorers=[model.scorer(2, 2.0)])
    texts = [text for size in range(4) for text in itertools.product((4, 5, 6), repeat=size)]
    flat = -np.log(V)
    scores = sorted((2 * model.log_prob(text) + flat * (len(text) + 1) for text in texts), reverse=True)
    np.testing.assert_allclose(np.asarray(result.scores), [scores[:3]] * 2, rtol=1e-4)
