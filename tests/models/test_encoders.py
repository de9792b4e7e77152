import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from attention_apps.models import TextEncoder
from attention_apps.models.encoders import ConvolutionalFrontEnd, Listener

B, T, M, V, U = 3, 21, 10, 7, 4
LENGTHS = (13, 21, 1)
FRONT_ENDS = ("convolutional", "pyramidal")


def make(front_end="convolutional", **options):
    keras.utils.set_random_seed(2)
    listener = Listener(V, U, num_layers=2, front_end=front_end, filters=3, **options)
    listener.build({"features": (None, None, M), "mask": (None, None)})
    return listener


def make_source(lengths=LENGTHS, time=T, padding=0.0):
    features = np.random.default_rng(1).normal(size=(len(lengths), T, M)).astype("float32")
    features = np.pad(features, ((0, 0), (0, max(time - T, 0)), (0, 0)))[:, :time]
    mask = np.arange(time) < np.array(lengths)[:, None]
    return {"features": np.where(mask[..., None], features, np.float32(padding)), "mask": mask}


def arrays(memory):
    return {name: ops.convert_to_numpy(memory[name]) for name in ("values", "mask", "ctc_logits")}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_the_memory_has_a_quarter_of_the_frames(front_end):
    listener = make(front_end)
    memory = listener(make_source())
    shapes = listener.compute_output_shape({"features": (B, T, M), "mask": (B, T)})
    assert memory["values"].shape == shapes["values"] == (B, 6, 2 * U)
    assert memory["ctc_logits"].shape == shapes["ctc_logits"] == (B, 6, V)
    assert memory["mask"].shape == shapes["mask"]
    assert [state.shape for state in memory["state"]] == shapes["state"] == [(B, U)] * 4
    np.testing.assert_array_equal(ops.convert_to_numpy(memory["mask"]).sum(axis=1), [4, 6, 1])
    assert listener.compute_output_shape({"features": (None, None, M)})["values"] == (None, None, 2 * U)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_padding_changes_nothing(front_end, training):
    expected = arrays(make(front_end)(make_source(), training=training))
    for time, padding in ((T, 50.0), (T + 1, 0.0), (T + 6, -9.0)):
        found = arrays(make(front_end)(make_source(time=time, padding=padding), training=training))
        for name, values in expected.items():
            rows = expected["mask"]
            np.testing.assert_allclose(found[name][:, :6][rows], values[rows], atol=2e-6)
        assert not found["mask"][:, 6:].any()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_an_utterance_alone_is_heard_as_in_a_batch(front_end):
    listener, source = make(front_end), make_source()
    together = arrays(listener(source))
    for row, length in enumerate(LENGTHS):
        alone = arrays(listener({name: entry[row : row + 1, :length] for name, entry in source.items()}))
        frames = alone["values"].shape[1]
        np.testing.assert_allclose(together["values"][row, :frames], alone["values"][0], atol=2e-6)
        np.testing.assert_allclose(together["ctc_logits"][row, :frames], alone["ctc_logits"][0], atol=2e-6)


def test_padding_does_not_count_in_the_statistics():
    def statistics(time, padding):
        keras.utils.set_random_seed(0)
        front_end = ConvolutionalFrontEnd(3, 5)
        source = make_source(time=time, padding=padding)
        front_end(source["features"], source["mask"], training=True)
        return [ops.convert_to_numpy(weight) for weight in front_end.non_trainable_weights[:4]]

    for first, second in zip(statistics(T, 0.0), statistics(T + 9, 70.0), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_convolution_is_the_one_of_its_definition():
    keras.utils.set_random_seed(0)
    front_end = ConvolutionalFrontEnd(2, 3, num_layers=1)
    source = make_source((5,), time=5)
    values, mask = front_end(source["features"], source["mask"], training=False)
    kernel = ops.convert_to_numpy(front_end.convolutions[0].kernel)
    padded = np.pad(source["features"][0], 1)
    heard = np.zeros((3, M // 2, 2))
    for time in range(3):
        for mel in range(M // 2):
            patch = padded[2 * time : 2 * time + 3, 2 * mel : 2 * mel + 3]
            heard[time, mel] = np.einsum("tm,tmc->c", patch, kernel[:, :, 0])
    heard = np.maximum(heard / np.sqrt(1 + 1e-3), 0).reshape(3, -1)
    expected = heard @ ops.convert_to_numpy(front_end.dense.kernel)
    np.testing.assert_allclose(values[0], expected, atol=1e-5)
    assert mask.shape == (1, 3)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_an_empty_row_is_finite_and_leaves_the_others_alone(front_end):
    listener, source = make(front_end), make_source()
    expected = arrays(listener(source))
    empty = {**source, "mask": source["mask"] & (np.arange(B) != 2)[:, None]}
    variables = [variable.value for variable in listener.trainable_variables]
    with tf.GradientTape() as tape:
        memory = listener(empty, training=True)
        loss = ops.sum(memory["ctc_logits"])
    assert all(np.isfinite(ops.convert_to_numpy(g)).all() for g in tape.gradient(loss, variables))
    found = arrays(make(front_end)(empty))
    assert all(np.isfinite(values).all() for values in found.values())
    np.testing.assert_allclose(found["values"][:2], expected["values"][:2], atol=2e-6)
    assert not found["mask"][2].any()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_the_configuration_is_complete_and_a_saved_listener_hears_alike(front_end, tmp_path):
    listener = make(front_end, dropout=0.1)
    config = listener.get_config()
    arguments = set(inspect.signature(Listener.__init__).parameters) - {"self", "kwargs"}
    assert arguments <= set(config)
    assert Listener.from_config(config).get_config() == config
    features, mask = keras.Input((None, M)), keras.Input((None,), dtype="bool")
    memory = listener({"features": features, "mask": mask})
    model = keras.Model([features, mask], [memory["values"], memory["ctc_logits"]])
    model.save(tmp_path / "listener.keras")
    reloaded = keras.models.load_model(tmp_path / "listener.keras")
    source = make_source()
    for found, expected in zip(reloaded([*source.values()]), model([*source.values()]), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_half_precision_goes_all_the_way_down(front_end):
    reference, listener = make(front_end), make(front_end, dtype="mixed_float16")
    listener.set_weights(reference.get_weights())
    memory = listener(make_source())
    assert keras.backend.standardize_dtype(memory["values"].dtype) == "float16"
    assert keras.backend.standardize_dtype(memory["ctc_logits"].dtype) == "float16"
    assert all(weight.dtype == "float32" for weight in listener.weights)
    expected = arrays(reference(make_source()))
    np.testing.assert_allclose(arrays(memory)["values"], expected["values"], atol=0.05)


def test_one_trace_serves_every_size():
    listener = make()
    signature = {"features": tf.TensorSpec((None, None, M)), "mask": tf.TensorSpec((None, None), tf.bool)}
    traced = tf.function(lambda source: listener(source)["ctc_logits"], input_signature=[signature])
    for source in (make_source(), make_source((5, 8), time=8)):
        np.testing.assert_allclose(traced(source), listener(source)["ctc_logits"], atol=1e-5)


def test_dropout_is_on_in_training_only():
    listener, source = make(dropout=0.5), make_source()
    quiet = arrays(listener(source))["values"]
    np.testing.assert_array_equal(arrays(listener(source))["values"], quiet)
    assert not np.allclose(arrays(listener(source, training=True))["values"], quiet)


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match=r"`front_end` must be one of .*Received: front_end='linear'"):
        Listener(V, front_end="linear")
    with pytest.raises(ValueError, match=r"`num_layers` must be a positive integer. Received: num_layers=0"):
        Listener(V, num_layers=0)
    with pytest.raises(ValueError, match=r"`filters` must be a positive integer. Received: filters=0"):
        ConvolutionalFrontEnd(0, 4)


WORDS, EMBEDDING, UNITS = 13, 6, 5
IDS = np.array([[4, 3, 6, 0, 0], [7, 3, 3, 3, 11]])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_memory_has_values_mask_and_state_of_the_shapes_it_says(cell):
    encoder = TextEncoder(WORDS, EMBEDDING, UNITS, num_layers=2, cell=cell)
    memory = encoder({"token_ids": IDS, "source_ids": IDS})
    shapes = encoder.compute_output_shape({"token_ids": IDS.shape, "source_ids": IDS.shape})
    assert {name: tuple(memory[name].shape) for name in ("values", "mask", "source_ids")} == {
        name: shapes[name] for name in ("values", "mask", "source_ids")
    }
    assert [tuple(state.shape) for state in memory["state"]] == shapes["state"]
    assert ops.convert_to_numpy(memory["mask"]).sum(1).tolist() == [3, 5]


def test_padding_of_a_text_changes_nothing():
    encoder = TextEncoder(WORDS, EMBEDDING, UNITS, num_layers=2)
    padded, alone = encoder({"token_ids": IDS}), encoder({"token_ids": IDS[:1, :3]})
    np.testing.assert_allclose(padded["values"][:1, :3], alone["values"], atol=1e-5)
    for long, short in zip(padded["state"], alone["state"], strict=True):
        np.testing.assert_allclose(long[:1], short, atol=1e-5)


def test_dropout_in_a_text_encoder_acts_in_training_only():
    encoder = TextEncoder(WORDS, EMBEDDING, UNITS, dropout=0.5)
    np.testing.assert_array_equal(encoder({"token_ids": IDS})["values"], encoder({"token_ids": IDS})["values"])
    dropped = encoder({"token_ids": IDS}, training=True)["values"]
    assert np.abs(dropped - encoder({"token_ids": IDS})["values"]).max() > 1e-4


def test_every_argument_is_in_the_config():
    arguments = {
        "vocabulary_size": WORDS,
        "embedding_dim": EMBEDDING,
        "units": UNITS,
        "num_layers": 3,
        "cell": "gru",
        "dropout": 0.1,
    }
    config = TextEncoder.from_config(TextEncoder(**arguments).get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments
