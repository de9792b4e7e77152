import keras
import numpy as np
import pytest
from keras import ops

from attention_apps.constants import UNKNOWN
from attention_apps.layers import AdditiveAttention
from attention_apps.models import PointerGenerator, RecurrentDecoder, Seq2Seq, TextEncoder, TransformerDecoder
from attention_apps.models.seq2seq import Decoder, repeat_for_targets

V, E = 13, 6
SOURCE = {"token_ids": np.array([[4, 3, 6, 0, 0], [7, 3, 3, 3, 11]]), "source_ids": np.array([[4, 14, 6, 0, 0]] * 2)}
TOKENS = np.random.default_rng(0).integers(1, V, (2, 4))
DECODERS = {
    "recurrent": lambda: RecurrentDecoder(V, E, 9, attention=AdditiveAttention(7), initial_state="last"),
    "plain": lambda: RecurrentDecoder(V, E, 9, attention=None, cell="gru", num_layers=2),
    "transformer": lambda: TransformerDecoder(V, E, num_heads=2, hidden_dim=9),
    "pointer": lambda: PointerGenerator(RecurrentDecoder(V, E, 9, attention=AdditiveAttention(7), attend="after")),
}


@pytest.fixture(params=[(name, shared) for name in DECODERS for shared in (False, True)], ids=str)
def model(request):
    name, shared = request.param
    return Seq2Seq(TextEncoder(V, E, 5, num_layers=2), DECODERS[name](), shared_embedding=shared)


def test_a_saved_model_comes_back_whole(model, tmp_path):
    expected = ops.convert_to_numpy(model({"source": SOURCE, "tokens": TOKENS}))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(ops.convert_to_numpy(again({"source": SOURCE, "tokens": TOKENS})), expected, atol=1e-6)
    assert len(again.trainable_variables) == len(model.trainable_variables)


def test_build_from_shapes_makes_what_a_call_makes(model):
    shapes = keras.tree.map_structure(lambda x: (None, *x.shape[1:]), {"source": SOURCE, "tokens": TOKENS})
    model.build(shapes)
    before = len(model.variables)
    model({"source": SOURCE, "tokens": TOKENS})
    assert len(model.variables) == before


def test_return_dict_gives_what_losses_ask_for(model):
    outputs = model({"source": SOURCE, "tokens": TOKENS}, return_dict=True)
    assert {"memory", "logits", "attention", "attention_state"} <= set(outputs)
    assert outputs["logits"].shape == (2, 4, V)


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        ({"inputs": TOKENS, "tokens": TOKENS}, r"a dict with the keys \['inputs', 'tokens'\]"),
        (TOKENS, r".*"),
    ],
)
@pytest.mark.parametrize("is_built", [False, True])
def test_wrong_inputs_are_explained(inputs, received, is_built):
    model = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"]())
    if is_built:
        model({"source": SOURCE, "tokens": TOKENS})
    with pytest.raises(ValueError, match=f"`inputs` must be a dict with `source` and `tokens`. Received: {received}"):
        model(inputs)


def test_tokens_in_a_dict_are_explained():
    model = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"]())
    with pytest.raises(
        ValueError, match=r"`tokens` must be a tensor of token ids .* a dict with the keys \['token_ids'\]"
    ):
        model({"source": SOURCE, "tokens": {"token_ids": TOKENS}})


WRONG_SOURCES = [
    ({"ids": TOKENS}, r"`source` must be a dict with `token_ids` for TextEncoder\. .* a dict with the keys \['ids'\]"),
    (TOKENS, "`source` must be the dict of tensors that TextEncoder takes. Received: "),
]


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(("source", "message"), WRONG_SOURCES, ids=["key", "tensor"])
def test_a_wrong_source_is_explained(source, message, is_built):
    model = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"]())
    if is_built:
        model({"source": SOURCE, "tokens": TOKENS})
    model.compile("adam", "sparse_categorical_crossentropy")
    inputs = {"source": source, "tokens": TOKENS}
    for call in (lambda: model(inputs), lambda: model.encode(source), lambda: model.fit(inputs, TOKENS, verbose=0)):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_shared_embedding_is_one_matrix():
    separate = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"]())
    shared = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"](), shared_embedding=True)
    for model in (separate, shared):
        model({"source": SOURCE, "tokens": TOKENS})
    assert separate.count_params() - shared.count_params() == V * E


def test_a_shared_embedding_of_another_size_is_an_error():
    with pytest.raises(ValueError, match=r"A shared embedding must be of shape \(13, 6\). Received: shape=\(13, 7\)"):
        Seq2Seq(TextEncoder(V, 7, 5), DECODERS["recurrent"](), shared_embedding=True)


@pytest.mark.slow
def test_fit_trains_it_like_any_keras_model():
    keras.utils.set_random_seed(0)
    model = Seq2Seq(TextEncoder(V, E, 5), DECODERS["recurrent"]())
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0))
    inputs = {"source": {"token_ids": SOURCE["token_ids"]}, "tokens": TOKENS[:, :-1]}
    losses = model.fit(inputs, TOKENS[:, 1:], epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


B, N, T, S, SIZE = 2, 3, 4, 5, 7


class ScoreDecoder(Decoder):
    """Its logits are the one-hot token times the item's number, so that rows cannot be mixed up."""

    def __init__(self):
        super().__init__()
        self.vocabulary_size = SIZE
        self.embedding = keras.layers.Embedding(SIZE, 6)

    def _teacher_force(self, tokens, memory, num_targets):
        numbers = repeat_for_targets(memory["numbers"], num_targets)
        return {"logits": ops.one_hot(tokens, SIZE) * numbers[:, None, None], "attention": None}, {"steps": T}

    def step_with_attention(self, token, state):
        return {"logits": ops.one_hot(token, SIZE) * state["numbers"][:, None], "attention": None}, state


@pytest.fixture
def memory():
    return {"numbers": ops.convert_to_tensor(np.arange(1, B + 1, dtype="float32"))}


def tokens(*shape):
    return np.random.default_rng(0).integers(0, SIZE, shape)


def test_one_target_gives_logits(memory):
    ids = tokens(B, T)
    logits = ops.convert_to_numpy(ScoreDecoder()(ids, memory))
    np.testing.assert_array_equal(logits, np.eye(SIZE)[ids] * np.array([1, 2])[:, None, None])


def test_several_targets_keep_their_axis_and_their_source(memory):
    ids = tokens(B, N, T)
    logits = ops.convert_to_numpy(ScoreDecoder()(ids, memory))
    np.testing.assert_array_equal(logits, np.eye(SIZE)[ids] * np.array([1, 2])[:, None, None, None])


def test_return_dict_has_logits_attention_and_the_attention_state(memory):
    outputs = ScoreDecoder()(tokens(B, N, T), memory, return_dict=True)
    assert set(outputs) == {"logits", "attention", "attention_state"}
    assert outputs["logits"].shape == (B, N, T, SIZE)
    assert outputs["attention"] is None
    assert outputs["attention_state"] == {"steps": T}


def test_a_step_gives_the_logits_alone(memory):
    logits, state = ScoreDecoder().step(ops.convert_to_tensor([3, 4]), memory)
    np.testing.assert_array_equal(ops.convert_to_numpy(logits), np.eye(SIZE)[[3, 4]] * [[1], [2]])
    assert state is memory


def test_ids_beyond_the_vocabulary_are_unknown():
    known = ScoreDecoder()._known_ids(ops.convert_to_tensor([0, SIZE - 1, SIZE, SIZE + 4]))
    assert ops.convert_to_numpy(known).tolist() == [0, SIZE - 1, UNKNOWN, UNKNOWN]


def test_a_shared_embedding_must_have_the_same_shape():
    decoder, embedding = ScoreDecoder(), keras.layers.Embedding(SIZE, 6)
    decoder.share_embedding(embedding)
    assert decoder.embedding is embedding
    with pytest.raises(ValueError, match=r"must be of shape \(7, 6\). Received: shape=\(7, 5\)"):
        decoder.share_embedding(keras.layers.Embedding(SIZE, 5))


def test_rows_are_repeated_next_to_each_other():
    rows = ops.convert_to_tensor([[1], [2]])
    repeated = repeat_for_targets({"a": [rows]}, 2)
    assert ops.convert_to_numpy(repeated["a"][0]).ravel().tolist() == [1, 1, 2, 2]
    assert repeat_for_targets(rows, None) is rows
