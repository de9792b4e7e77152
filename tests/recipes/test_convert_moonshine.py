import json

import numpy as np
import pytest

from attention_apps.layers.transformer import RotaryPosition
from tests.recipes.loading import load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
convert_moonshine = load("convert_moonshine", "speech_recognition")


@pytest.fixture
def weights(tmp_path):
    arrays = {
        "onnx::MatMul_7_merged_0_quantized": np.array([[0, 3, 9], [1, 2, 255]], "uint8"),
        "onnx::MatMul_7_merged_0_scale": np.array(0.5, "float32"),
        "onnx::MatMul_7_merged_0_zero_point": np.array(3, "uint8"),
        "conv.weight_quantized": np.arange(-12, 12, dtype="int8").reshape(4, 3, 2),
        "conv.weight_scale": np.array(0.1, "float32"),
        "conv.weight_zero_point": np.array(0.25, "float32"),
    }
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], [], initializers)), path)
    return convert_moonshine.OnnxWeights(path, suffix="_merged_0")


def test_matrices_are_dequantized(weights):
    assert weights.matrix(7).tolist() == [[-1.5, 0, 3], [-1, -0.5, 126]]


def test_the_zero_point_of_a_convolution_is_added(weights):
    kernel = weights.kernel("conv.weight")
    assert kernel.shape == (2, 3, 4)
    np.testing.assert_allclose(kernel[1, 2, 0], 0.1 * -7 + 0.25, rtol=1e-6)


def test_reordered_columns_give_the_scores_of_rotated_neighbors():
    heads, size, rotary = convert_moonshine.HEADS, convert_moonshine.HEAD_DIM, convert_moonshine.ROTARY_DIM
    generator, positions = np.random.default_rng(0), np.array([2, 11])
    query, key, value = generator.normal(size=(3, 5, heads * size)).astype("float32")
    hidden = generator.normal(size=(2, 5)).astype("float32")

    def rotate_neighbors(vectors):
        vectors = vectors.reshape(2, heads, size)
        angles = positions[:, None, None] / 10000 ** (np.arange(rotary // 2) / (rotary // 2))
        even, odd = vectors[..., :rotary:2], vectors[..., 1:rotary:2]
        turned = [even * np.cos(angles) - odd * np.sin(angles), odd * np.cos(angles) + even * np.sin(angles)]
        return np.concatenate([*turned, vectors[..., rotary:]], axis=-1)

    joined = (hidden @ convert_moonshine._join(query, key, value)).reshape(2, 3, heads, size)
    rotated = [RotaryPosition(rotary)(joined[:, part, :, None], position=positions)[:, :, 0] for part in (0, 1)]
    ours = np.einsum("thd,shd->hts", *rotated)
    expected = np.einsum("thd,shd->hts", rotate_neighbors(hidden @ query), rotate_neighbors(hidden @ key))
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(joined[:, 2].reshape(2, -1), hidden @ value, rtol=1e-4, atol=1e-5)


def test_the_vocabulary_keeps_the_ids_and_names_pieces_with_control_characters(tmp_path):
    pieces = ["<unk>", "<s>", "</s>", "<0x00>", "<0x01>", ";\r", "▁the", "\u2028"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": {piece: index for index, piece in enumerate(pieces)}}}))
    tokens = convert_moonshine.convert_vocabulary(path).tokens
    assert tokens == ("<pad>", "<start>", "<end>", "<unk>", "<0x01>", "<unused_5>", "▁the", "<unused_7>")


def test_integer_products_of_a_branch_become_float_products():
    """Quantized activations would give 0.1 here an error of some 1e-3."""
    make_node, quantized = onnx.helper.make_node, np.array([[0, 3], [9, 255]], "uint8")
    nodes = [
        make_node("DynamicQuantizeLinear", ["x"], ["x_quantized", "x_scale", "x_zero_point"]),
        make_node("MatMulInteger", ["x_quantized", "w", "x_zero_point", "w_zero_point"], ["product"]),
        make_node("Cast", ["product"], ["float_product"], to=onnx.TensorProto.FLOAT),
        make_node("Mul", ["float_product", "x_scale"], ["y"]),
    ]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 2])
    branch = onnx.helper.make_graph(nodes, "branch", [], [output])
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])]
    inputs += [onnx.helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, [])]
    arrays = {"w": quantized, "w_zero_point": np.array(3, "uint8")}
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    choice = make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    graph = onnx.helper.make_graph([choice], "graph", inputs, [output], initializers)
    options = {"opset_imports": [onnx.helper.make_opsetid("", 17)], "ir_version": 8}
    model = convert_moonshine.keep_activations_in_float(onnx.helper.make_model(graph, **options))
    session = convert_moonshine.onnxruntime.InferenceSession(model.SerializeToString())
    x = np.array([[0.1, 0.777]], "float32")
    for condition in (True, False):
        (found,) = session.run(None, {"x": x, "condition": np.array(condition)})
        np.testing.assert_allclose(found, x @ (quantized.astype("float32") - 3), rtol=1e-6)
