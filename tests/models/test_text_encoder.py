import numpy as np
import pytest
from keras import ops

from attention_apps.models import TextEncoder

V, E, U = 13, 6, 5
IDS = np.array([[4, 3, 6, 0, 0], [7, 3, 3, 3, 11]])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_memory_has_values_mask_and_state_of_the_shapes_it_says(cell):
    encoder = TextEncoder(V, E, U, num_layers=2, cell=cell)
    memory = encoder({"token_ids": IDS, "source_ids": IDS})
    shapes = encoder.compute_output_shape({"token_ids": IDS.shape, "source_ids": IDS.shape})
    assert {name: tuple(memory[name].shape) for name in ("values", "mask", "source_ids")} == {
        name: shapes[name] for name in ("values", "mask", "source_ids")
    }
    assert [tuple(state.shape) for state in memory["state"]] == shapes["state"]
    assert ops.convert_to_numpy(memory["mask"]).sum(1).tolist() == [3, 5]


def test_padding_changes_nothing():
    encoder = TextEncoder(V, E, U, num_layers=2)
    padded, alone = encoder({"token_ids": IDS}), encoder({"token_ids": IDS[:1, :3]})
    np.testing.assert_allclose(padded["values"][:1, :3], alone["values"], atol=1e-5)
    for long, short in zip(padded["state"], alone["state"], strict=True):
        np.testing.assert_allclose(long[:1], short, atol=1e-5)


def test_dropout_acts_in_training_only():
    encoder = TextEncoder(V, E, U, dropout=0.5)
    np.testing.assert_array_equal(encoder({"token_ids": IDS})["values"], encoder({"token_ids": IDS})["values"])
    dropped = encoder({"token_ids": IDS}, training=True)["values"]
    assert np.abs(dropped - encoder({"token_ids": IDS})["values"]).max() > 1e-4


def test_every_argument_is_in_the_config():
    arguments = {
        "vocabulary_size": V,
        "embedding_dim": E,
        "units": U,
        "num_layers": 3,
        "cell": "gru",
        "dropout": 0.1,
    }
    config = TextEncoder.from_config(TextEncoder(**arguments).get_config()).get_config()
    assert {name: config[name] for name in arguments} == arguments
