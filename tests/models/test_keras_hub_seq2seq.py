import keras
import numpy as np
import pytest
import tensorflow as tf

from attention_apps.constants import END, PADDING, START
from attention_apps.decoding import DecodingOptions, beam_search
from attention_apps.models.keras_hub_seq2seq import HubTokens, make_keras_hub_model
from tests.models.keras_hub_models import MAKERS, TEXTS, make_bart

LENGTH = 5


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("t5", "t5gemma")]


@pytest.fixture(scope="module", params=["bart", *SLOW])
def hub(request):
    """A language model, its tokens, our model of it, and texts as both read them."""
    language_model = MAKERS[request.param]()
    tokens = HubTokens.of(language_model.preprocessor)
    model = make_keras_hub_model(language_model, tokens, max_length=20)
    ids = [list(row) for row in language_model.preprocessor.tokenizer(list(TEXTS))]
    source = {"token_ids": tf.gather(tokens.our_ids, tf.ragged.constant(ids)).to_tensor(PADDING)}
    packed = language_model.preprocessor.generate_preprocess(list(TEXTS))
    return language_model, tokens, model, source, {name: tf.convert_to_tensor(part) for name, part in packed.items()}


def search(model, source, **options):
    """In a graph for any batch and length."""
    options = DecodingOptions(max_length=LENGTH, **options)

    def run(token_ids):
        memory = model.encode({"token_ids": token_ids})
        return beam_search(model.decoder.step, model.decoder.init_state(memory), options), memory

    return tf.function(run, [tf.TensorSpec((None, None), tf.int32)], autograph=False)(source["token_ids"])


def forced(token_ids):
    """What is fed in when some tokens are to be written."""
    return np.concatenate([np.full((len(token_ids), 1), START), token_ids[:, :-1]], axis=1)


def test_our_ids_are_those_of_the_model_in_another_order(hub):
    language_model, tokens, *_ = hub
    tokenizer = language_model.preprocessor.tokenizer
    assert tokens.hub_ids[PADDING] == tokenizer.pad_token_id
    assert tokens.hub_ids[END] == tokenizer.end_token_id
    assert sorted(index for index in tokens.hub_ids if index >= 0) == list(range(tokenizer.vocabulary_size()))
    for hub_id in range(3, tokenizer.vocabulary_size()):
        assert tokens.hub_ids[tokens.our_ids[hub_id]] == hub_id


def test_the_memory_is_that_of_the_model(hub):
    language_model, _, model, source, packed = hub
    memory = model.encode(source)
    expected = language_model.backbone.predict(packed, verbose=0)["encoder_sequence_output"]
    mask = packed["encoder_padding_mask"].numpy().astype(bool)
    np.testing.assert_array_equal(memory["mask"], mask[:, : memory["mask"].shape[1]])
    for row in range(len(TEXTS)):
        np.testing.assert_allclose(memory["values"][row][memory["mask"][row]], expected[row][mask[row]], atol=1e-4)


def test_greedy_is_that_of_keras_hub_token_by_token(hub):
    language_model, tokens, model, source, packed = hub
    language_model.compile(sampler="greedy")
    generate = language_model.make_generate_function()
    end = language_model.preprocessor.tokenizer.end_token_id
    expected = generate(packed, stop_token_ids=[end])["decoder_token_ids"].numpy()
    first = len(tokens.before_start) + 1
    written = tokens.to_hub(search(model, source, beam_size=1)[0].token_ids[:, 0]).numpy()
    length = min(LENGTH, expected.shape[1] - first)
    for ours, theirs in zip(written, expected[:, first:], strict=True):
        stop = next((place for place in range(length) if theirs[place] == end), length - 1)
        assert ours[: stop + 1].tolist() == theirs[: stop + 1].tolist()


def test_steps_equal_teacher_forcing_and_both_the_model_itself(hub):
    language_model, tokens, model, source, packed = hub
    memory = model.encode(source)
    targets = np.random.default_rng(0).integers(4, len(tokens.hub_ids), (len(TEXTS), 4))
    fed = np.concatenate([np.full((len(TEXTS), 1), START), targets], axis=1)
    logits = model.decoder(fed, memory).numpy()
    state, steps = model.decoder.init_state(memory, max_length=fed.shape[1]), []
    for column in fed.T:
        step, state = model.decoder.step(tf.constant(column, tf.int32), state)
        steps.append(step)
    np.testing.assert_allclose(np.stack(steps, axis=1), logits, atol=2e-4)
    before = np.tile(np.array([tokens.before_start], np.int32), (len(TEXTS), 1))
    decoder_ids = np.concatenate([before, tokens.to_hub(fed).numpy()], axis=1)
    inputs = {
        **packed,
        "decoder_token_ids": tf.constant(decoder_ids),
        "decoder_padding_mask": tf.ones_like(decoder_ids),
    }
    expected = tokens.to_our_logits(language_model(inputs)[:, before.shape[1] :]).numpy()
    np.testing.assert_allclose(logits, expected, atol=2e-4)


def test_the_score_of_a_beam_is_the_sum_of_the_models_log_probabilities(hub):
    _, _, model, source, _ = hub
    result, memory = search(model, source, beam_size=3, num_best=3)
    for rank in range(3):
        written = result.token_ids[:, rank].numpy()
        log_probs = keras.ops.log_softmax(model.decoder(forced(written), memory)).numpy()
        of_tokens = np.take_along_axis(log_probs, written[..., None], axis=-1)[..., 0]
        is_written = np.arange(LENGTH) < result.lengths[:, rank].numpy()[:, None]
        np.testing.assert_allclose(result.scores[:, rank], (of_tokens * is_written).sum(axis=1), rtol=1e-4)


def test_attention_is_over_the_source_and_nothing_else(hub):
    _, _, model, source, _ = hub
    memory = model.encode(source)
    outputs = model.decoder(np.full((2, 5), START), memory, return_dict=True)
    logits, weights = outputs["logits"], outputs["attention"]
    assert weights.shape == (2, 5, memory["mask"].shape[1])
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-4)
    assert np.abs(np.where(memory["mask"][:, None], 0, weights)).max() < 1e-6
    np.testing.assert_array_equal(model.decoder(np.full((2, 5), START), memory), logits)


def test_several_targets_of_one_source_equal_each_on_its_own(hub):
    _, _, model, source, _ = hub
    memory = model.encode(source)
    targets = np.random.default_rng(0).integers(4, 20, (2, 3, 5))
    outputs = model.decoder(targets, memory, return_dict=True)
    together, weights = outputs["logits"], outputs["attention"]
    assert weights.shape[:3] == (2, 3, 5)
    for index in range(3):
        np.testing.assert_allclose(together[:, index], model.decoder(targets[:, index], memory), atol=1e-4)


def test_what_depends_on_the_source_only_is_handed_back_as_it_was(hub):
    _, _, model, source, _ = hub
    state = model.decoder.init_state(model.encode(source))
    _, after = model.decoder.step(tf.constant([START, START]), state)
    assert all(after[name] is state[name] for name in ("values", "mask", "cross_cache"))


def test_weights_are_shared_with_the_language_model(hub):
    language_model, _, model, *_ = hub
    assert {id(weight) for weight in model.trainable_variables} == {
        id(weight) for weight in language_model.trainable_variables
    }


def test_every_weight_of_bart_learns():
    language_model = make_bart()
    tokens = HubTokens.of(language_model.preprocessor)
    model = make_keras_hub_model(language_model, tokens)
    inputs = {"source": {"token_ids": np.array([[5, 6, 7]])}, "tokens": np.array([[START, 8, 9]])}
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(inputs, training=True)))
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    assert all(gradient is not None for gradient in gradients)


def test_another_model_is_refused():
    language_model = make_bart()
    language_model.backbone.decoder_transformer_layers = []
    with pytest.raises(ValueError, match="must be a BART, T5 or T5Gemma of KerasHub. Received: BartSeq2SeqLM"):
        make_keras_hub_model(language_model, HubTokens.of(language_model.preprocessor))
