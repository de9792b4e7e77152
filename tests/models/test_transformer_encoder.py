import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.models.pointer_generator import PointerGenerator
from attention_apps.models.seq2seq import Seq2Seq
from attention_apps.models.transformer_decoder import TransformerDecoder
from attention_apps.models.transformer_encoder import TransformerEncoder

SOURCE = {"token_ids": np.array([[4, 5, 6, 7, 8], [9, 4, 5, 0, 0]], "int32")}


def make_encoder(**arguments):
    keras.utils.set_random_seed(1)
    encoder = TransformerEncoder(20, 8, **{"num_layers": 2, "num_heads": 2, "hidden_dim": 12, **arguments})
    encoder.build({"token_ids": (None, None)})
    return encoder


def test_the_memory_has_values_mask_and_source_ids():
    memory = make_encoder()({**SOURCE, "source_ids": SOURCE["token_ids"]})
    assert memory["values"].shape == (2, 5, 8)
    assert ops.convert_to_numpy(memory["mask"]).tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert memory["source_ids"].shape == (2, 5)
    assert "source_ids" not in make_encoder()(SOURCE)


def test_shapes_are_known_before():
    shapes = make_encoder().compute_output_shape({"token_ids": (2, 5), "source_ids": (2, 5)})
    assert shapes == {"values": (2, 5, 8), "mask": (2, 5), "source_ids": (2, 5)}


def test_padding_changes_nothing():
    encoder = make_encoder()
    longer = {"token_ids": np.pad(SOURCE["token_ids"], ((0, 0), (0, 3)))}
    np.testing.assert_allclose(encoder(longer)["values"][1, :3], encoder(SOURCE)["values"][1, :3], atol=1e-5)


def test_order_counts():
    encoder = make_encoder()
    swapped = {"token_ids": SOURCE["token_ids"][:, [1, 0, 2, 3, 4]]}
    assert np.abs(encoder(swapped)["values"] - encoder(SOURCE)["values"])[0, 2].max() > 1e-4


def test_it_copies_with_a_shared_embedding_and_is_saved_and_loaded(tmp_path):
    decoder = PointerGenerator(TransformerDecoder(20, 8, num_layers=1, num_heads=2, hidden_dim=12, max_length=6))
    model = Seq2Seq(make_encoder(), decoder, shared_embedding=True)
    source = {**SOURCE, "source_ids": np.where(SOURCE["token_ids"] == 8, 24, SOURCE["token_ids"])}
    inputs = {"source": source, "tokens": np.array([[1, 4, 24], [1, 5, 6]], "int32")}
    logits = model(inputs)
    assert logits.shape == (2, 3, 25)
    assert model.encoder.embedding is model.decoder.decoder.embedding
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(inputs), logits, atol=1e-5)


def test_every_argument_is_in_the_configuration():
    arguments = {"num_layers": 3, "num_heads": 2, "hidden_dim": 5, "dropout": 0.25}
    config = TransformerEncoder(7, 4, **arguments).get_config()
    assert {name: config[name] for name in ("vocabulary_size", "embedding_dim", *arguments)} == {
        **{"vocabulary_size": 7, "embedding_dim": 4},
        **arguments,
    }


def test_it_needs_a_layer():
    with pytest.raises(ValueError, match="`num_layers` must be at least 1"):
        TransformerEncoder(7, 4, num_layers=0)
