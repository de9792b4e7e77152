import numpy as np
import pytest
from keras import ops

from attention_apps.models.transformer_decoder import TransformerDecoder
from attention_apps.models.transformer_encoder import TransformerEncoder

V, E = 11, 6
SIZES = {"num_layers": 2, "num_heads": 3, "hidden_dim": 5}


def make(stack):
    layer = stack(V, E, **SIZES, name="stack")
    if stack is TransformerEncoder:
        layer.build({"token_ids": (None, None)})
    else:
        layer.build((None, None), {"values": (None, None, 7)})
    return layer


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_weights_keep_the_paths_that_saved_weights_are_found_by(stack):
    paths = {weight.path for weight in make(stack).weights}
    attention = "attention" if stack is TransformerEncoder else "self_attention"
    assert {
        "stack/embedding/embeddings",
        f"stack/block_1/{attention}/query/kernel",
        "stack/block_1/feed_forward/norm/gamma",
        "stack/block_1/feed_forward/output/bias",
        "stack/norm/beta",
    } <= paths
    assert not any("block_2" in path for path in paths)


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_embeddings_are_scaled_and_have_positions(stack):
    layer, ids = make(stack), np.array([[4, 4, 4]])
    embedded = ops.convert_to_numpy(layer._embed(ids))
    later = ops.convert_to_numpy(layer._embed(ids[:, :1], position=np.array([2])))
    np.testing.assert_allclose(later[0, 0], embedded[0, 2], atol=1e-6)
    word = ops.convert_to_numpy(layer.embedding.embeddings)[4] * E**0.5
    np.testing.assert_allclose(embedded[0, 0], word + np.array([0, 1] * 3), atol=1e-6)


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_no_layers_are_an_error(stack):
    with pytest.raises(ValueError, match="`num_layers` must be at least 1. Received: num_layers=0"):
        stack(V, E, num_layers=0, num_heads=2)
