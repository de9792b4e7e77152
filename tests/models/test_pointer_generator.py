import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.models import PointerGenerator
from attention_apps.training.losses import token_losses
from tests.models.decoders import B, D, N, S, T, V, make_memory, make_recurrent, make_tokens, make_transformer, stepwise

DECODERS = {
    "before": lambda: make_recurrent(),
    "after": lambda: make_recurrent(attend="after"),
    "coverage": lambda: make_recurrent("coverage"),
    "transformer": lambda: make_transformer(),
}


@pytest.fixture(params=DECODERS)
def pointer(request):
    pointer = PointerGenerator(DECODERS[request.param]())
    pointer(make_tokens(B, T), make_memory())
    rng = np.random.default_rng(4)
    for weight in pointer.trainable_variables:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return pointer


def test_it_is_a_distribution_over_the_vocabulary_and_the_source(pointer):
    log_probs = ops.convert_to_numpy(pointer(make_tokens(B, T), make_memory()))
    assert log_probs.shape == (B, T, V + S)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, atol=1e-5)


def test_it_equals_the_formula_of_the_paper(pointer):
    memory, tokens = make_memory(), make_tokens(B, T)
    outputs = pointer(tokens, memory, return_dict=True)
    generate = 1 / (1 + np.exp(-ops.convert_to_numpy(outputs["switch"])))[..., None]
    words = np.exp(ops.convert_to_numpy(tf.nn.log_softmax(outputs["logits"])))
    expected = np.concatenate([generate * words, np.zeros((B, T, S))], axis=-1)
    ids, attention = ops.convert_to_numpy(memory["source_ids"]), ops.convert_to_numpy(outputs["attention"])
    for row in range(B):
        for time in range(T):
            for place in range(S):
                expected[row, time, ids[row, place]] += (1 - generate[row, time, 0]) * attention[row, time, place]
    np.testing.assert_allclose(np.exp(pointer(tokens, memory)), expected, atol=1e-5)


def test_stepwise_equals_teacher_forced(pointer):
    memory, tokens = make_memory(), make_tokens(B, T, largest=V + S)
    steps, _ = stepwise(pointer, tokens, memory)
    np.testing.assert_allclose(np.exp(steps), np.exp(pointer(tokens, memory)), atol=1e-5)


def test_several_targets_of_one_source_equal_each_on_its_own(pointer):
    memory, tokens = make_memory(), make_tokens(B, N, T)
    together = pointer(tokens, memory)
    for index in range(N):
        np.testing.assert_allclose(np.exp(together[:, index]), np.exp(pointer(tokens[:, index], memory)), atol=1e-5)


def test_a_word_that_is_nowhere_in_the_source_cannot_be_copied(pointer):
    probabilities = np.exp(pointer(make_tokens(B, T), make_memory()))
    assert (probabilities[0, :, [V + 0, V + 2, V + 4]] < 1e-20).all()  # only V + 1 and V + 3 stand for words there
    assert (probabilities[0, :, [V + 1, V + 3]] > 0).all()


def test_the_loss_from_the_parts_equals_that_of_the_whole_distribution(pointer):
    memory, tokens, targets = make_memory(), make_tokens(B, T), np.array([[4, V + 1, 6, 2], [V, 5, 2, 0]], "int32")
    losses = token_losses(pointer(tokens, memory, return_dict=True), tf.constant(targets)).numpy()
    whole = -np.take_along_axis(ops.convert_to_numpy(pointer(tokens, memory)), targets[..., None], -1)[..., 0]
    np.testing.assert_allclose(losses, np.where(targets == 0, 0, whole), atol=1e-4)


def test_a_graph_with_unknown_sizes_gives_the_same(pointer):
    memory, tokens = make_memory(), make_tokens(B, T)
    graph = tf.function(
        lambda tokens, values, mask, ids: pointer(tokens, {"values": values, "mask": mask, "source_ids": ids}),
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, None, D)),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((None, None), tf.int32),
        ],
    )
    found = graph(tokens, memory["values"], memory["mask"], memory["source_ids"])
    np.testing.assert_allclose(np.exp(found), np.exp(pointer(tokens, memory)), atol=1e-5)


def test_a_decoder_without_attention_is_refused():
    with pytest.raises(
        ValueError, match=r"`decoder` must have an attention layer to copy by. Received: attention=None"
    ):
        PointerGenerator(make_recurrent("none"))
