"""Converts Moonshine-tiny from the quantized ONNX files of its authors to a preset of this library.

    npm pack @moonshine-ai/moonshine-js@0.1.29 && tar xzf moonshine-ai-moonshine-js-0.1.29.tgz
    pip download --no-deps useful-moonshine-onnx && unzip useful_moonshine_onnx-*.whl
    python convert_moonshine.py package/dist/model/tiny/quantized moonshine_onnx/assets/tokenizer.json PRESET

Needs `pip install onnx onnxruntime`. Writes a preset in 8 bits, with the configuration in moonshine.toml and the card
that the preset has already, and fails if the converted model differs from onnxruntime. The files also quantize
activations, which ours does not, so the comparison runs them with activations in float32. Then nothing but rounding is
left, about 1e-4.

Model and tokenizer: Jeffries et al. 2024, "Moonshine", Useful Sensors (now Moonshine AI), MIT license.
"""

import argparse
import json
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from attention_apps.applications import RecognizerConfig, SpeechRecognizer
from attention_apps.constants import SPECIAL_TOKENS
from attention_apps.models import MoonshineDecoder, MoonshineEncoder, Seq2Seq
from attention_apps.preprocessing import Vocabulary
from attention_apps.training import read_config

HEADS, HEAD_DIM, ROTARY_DIM = 8, 36, 32
# The remaining ids of the model, up to 32,767, have no sub-word and are never written.
VOCABULARY_SIZE = 32_000
CONFIG = Path(__file__).with_name("moonshine.toml")

# Of each decoder layer: self-attention query, key, value, output; cross-attention query, key, value, output; up, down.
_DECODER_MATRICES = (
    (2115, 2234, 2117, 2162, 2281, 2282, 2283, 2293, 2294, 2169),
    (2296, 2297, 2298, 2343, 2218, 2345, 2346, 2222, 2223, 2224),
    (2359, 2360, 2227, 2272, 2273, 2408, 2409, 2277, 2420, 2421),
    (2280, 2423, 2424, 2469, 2470, 2471, 2472, 2332, 2483, 2484),
    (2485, 2486, 2487, 2382, 2533, 2534, 2535, 2545, 2388, 2389),
    (2548, 2549, 2550, 2595, 2438, 2597, 2598, 2442, 2609, 2444),
)


class OnnxWeights:
    """The initializers of an ONNX file, as float32 arrays by name.

    Args:
        path: the file.
        suffix: what the file appends to the names of its weights.
    """

    def __init__(self, path: Path, suffix: str = "") -> None:
        graph = onnx.load(path).graph
        self.initializers = {initializer.name: initializer for initializer in _initializers(graph)}
        self.suffix = suffix

    def array(self, name: str) -> np.ndarray:
        """A weight that is stored in float32."""
        return numpy_helper.to_array(self.initializers[name])

    def matrix(self, number: int) -> np.ndarray:
        """A matrix `(inputs, outputs)` that is stored in 8 bits."""
        return self.dequantize(f"onnx::MatMul_{number}{self.suffix}")

    def dequantize(self, name: str) -> np.ndarray:
        """A weight that is stored in 8 bits with one scale and zero point."""
        quantized, scale, zero_point = (self.array(f"{name}_{part}") for part in ("quantized", "scale", "zero_point"))
        return (quantized.astype("float32") - zero_point.astype("float32")) * scale

    def kernel(self, name: str) -> np.ndarray:
        """A convolution's kernel `(time, inputs, outputs)`. Its zero point is a float that is added after scaling."""
        quantized, scale, offset = (self.array(f"{name}_{part}") for part in ("quantized", "scale", "zero_point"))
        return (quantized.astype("float32") * scale + offset).transpose(2, 1, 0)


def _initializers(graph):
    """Those of a graph and of the branches of its conditions."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _initializers(attribute.g)


def convert(encoder_path: Path, decoder_path: Path, tokenizer: Path, config: RecognizerConfig) -> SpeechRecognizer:
    """Moonshine-tiny with the weights of two ONNX files."""
    recognizer = SpeechRecognizer(config, convert_vocabulary(tokenizer))
    convert_encoder(recognizer.model.encoder, OnnxWeights(encoder_path))
    convert_decoder(recognizer.model.decoder, OnnxWeights(decoder_path, suffix="_merged_0"))
    return recognizer


def convert_encoder(encoder: MoonshineEncoder, weights: OnnxWeights) -> None:
    for index, convolution in enumerate(encoder.convolutions, start=1):
        bias = [weights.array(f"conv{index}.bias")] if index > 1 else []
        convolution.set_weights([weights.kernel(f"conv{index}.weight"), *bias])
    encoder.group_scale.assign(weights.array("onnx::Mul_1488").ravel())
    encoder.group_offset.assign(weights.array("onnx::Add_1489").ravel())
    for index, block in enumerate(encoder.blocks):
        name, shift = f"layers.{index}", 47 * index
        query, key, value = (weights.matrix(number + shift) for number in (1493, 1494, 1495))
        block.attention.query_key_value.set_weights([_join(query, key, value)])
        block.attention.output_dense.set_weights([weights.matrix(1537 + shift)])
        block.up.set_weights([weights.matrix(1538 + shift), weights.array(f"{name}.mlp.fc1.bias")])
        block.down.set_weights([weights.matrix(1539 + shift), weights.array(f"{name}.mlp.fc2.bias")])
        block.attention_norm.set_weights([weights.array(f"{name}.input_layernorm.weight")])
        block.feed_forward_norm.set_weights([weights.array(f"{name}.post_attention_layernorm.weight")])
    encoder.norm.set_weights([weights.array("layer_norm.weight")])


def convert_decoder(decoder: MoonshineDecoder, weights: OnnxWeights) -> None:
    embedding = weights.dequantize("model.decoder.embed_tokens.weight_merged_0")
    decoder.embedding.assign(embedding[:VOCABULARY_SIZE].T)
    for index, (block, numbers) in enumerate(zip(decoder.blocks, _DECODER_MATRICES, strict=True)):
        name = f"model.decoder.layers.{index}"
        *attention, up, down = (weights.matrix(number) for number in numbers)
        query, key, value, output, cross_query, cross_key, cross_value, cross_output = attention
        block.self_attention.query_key_value.set_weights([_join(query, key, value)])
        block.self_attention.output_dense.set_weights([output])
        block.cross_attention.query_dense.set_weights([cross_query])
        block.cross_attention.key_value.set_weights([np.concatenate([cross_key, cross_value], axis=1)])
        block.cross_attention.output_dense.set_weights([cross_output])
        block.up.set_weights([up, weights.array(f"{name}.mlp.up_proj.bias_merged_0")])
        block.down.set_weights([down, weights.array(f"{name}.mlp.down_proj.bias_merged_0")])
        for norm, place in (("self", "input"), ("cross", "post_attention"), ("feed_forward", "final")):
            scale = weights.array(f"{name}.{place}_layernorm.weight_merged_0")
            getattr(block, f"{norm}_norm").set_weights([scale])
    decoder.norm.set_weights([weights.array("model.decoder.norm.weight_merged_0")])


def _join(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The matrices of a self-attention as one. Moonshine rotates neighboring features, `RotaryPosition` two halves."""
    rotated = np.arange(ROTARY_DIM).reshape(-1, 2).T.ravel()  # 0, 2, 4, ..., 1, 3, 5, ...
    order = np.concatenate([rotated, np.arange(ROTARY_DIM, HEAD_DIM)])
    columns = (np.arange(HEADS)[:, None] * HEAD_DIM + order).ravel()
    return np.concatenate([query[:, columns], key[:, columns], value], axis=1)


def convert_vocabulary(path: Path) -> Vocabulary:
    """The sub-words of a `tokenizer.json`, one for each id.

    Ours begin with padding, start, end and unknown, which are Moonshine's unknown, start, end and the byte 0: no
    transcript has either. Pieces of program code that hold control characters or line breaks get a name in their place.
    """
    ids = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(ids, key=ids.get)[len(SPECIAL_TOKENS) : VOCABULARY_SIZE]
    return Vocabulary(
        f"<unused_{index}>" if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in piece) else piece
        for index, piece in enumerate(pieces, start=len(SPECIAL_TOKENS))
    )


def keep_activations_in_float(model: onnx.ModelProto) -> onnx.ModelProto:
    """Changes a graph so that it multiplies float activations by its 8-bit weights."""
    weights = {initializer.name: numpy_helper.to_array(initializer) for initializer in _initializers(model.graph)}
    shifted = {"one": np.array(1.0, "float32")}
    _replace_integer_products(model.graph, weights, shifted)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in shifted.items())
    return model


def _replace_integer_products(
    graph: onnx.GraphProto, weights: dict[str, np.ndarray], shifted: dict[str, np.ndarray]
) -> None:
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _replace_integer_products(attribute.g, weights, shifted)
        if node.op_type == "DynamicQuantizeLinear":  # the values as they are, with a scale of 1
            nodes.append(onnx.helper.make_node("Identity", node.input[:1], node.output[:1]))
            nodes.append(onnx.helper.make_node("Identity", ["one"], node.output[1:2]))
        elif node.op_type == "MatMulInteger":
            name = f"{node.input[1]}_shifted"
            shifted[name] = weights[node.input[1]].astype("float32") - weights[node.input[3]].astype("float32")
            nodes.append(onnx.helper.make_node("MatMul", [node.input[0], name], node.output))
        else:
            nodes.append(node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)


def compare(model: Seq2Seq, encoder_path: Path, decoder_path: Path, seconds: float = 4.0) -> dict[str, float]:
    """Largest differences from onnxruntime, for a sound with a few overtones and the tokens of one text."""
    onnxruntime.set_default_logger_severity(3)  # no warnings about the weights that are no longer used
    encoder, decoder = (
        onnxruntime.InferenceSession(keep_activations_in_float(onnx.load(path)).SerializeToString())
        for path in (encoder_path, decoder_path)
    )
    times = np.arange(int(16_000 * seconds)) / 16_000
    waveform = sum(np.sin(2 * np.pi * 140 * order * times) * np.sin(3 * times * order) / order for order in range(1, 9))
    waveform = (0.1 * waveform[None]).astype("float32")
    (values,) = encoder.run(None, {"input_values": waveform})
    tokens = np.array([[1, 450, 4996, 17354, 1701, 29916]])
    past = [entry.name for entry in decoder.get_inputs() if entry.name.startswith("past_key_values")]
    inputs = {"input_ids": tokens, "encoder_hidden_states": values, "use_cache_branch": np.array([False])}
    inputs |= dict.fromkeys(past, np.zeros((1, HEADS, 0, HEAD_DIM), "float32"))
    (logits,) = decoder.run(["logits"], inputs)
    our_values = model.encode({"waveform": waveform})["values"]
    our_logits = model.decoder(tokens, {"values": values, "mask": np.ones(values.shape[:2], bool)})
    return {
        "encoder": float(np.abs(our_values - values).max()),
        "decoder": float(np.abs(our_logits - logits[..., :VOCABULARY_SIZE]).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnx", type=Path, help="folder of encoder_model.onnx and decoder_model_merged.onnx")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("output", type=Path, help="folder of the preset")
    parser.add_argument("--bits", type=int, default=8, choices=(8, 16, 32), help="of a weight (default: %(default)s)")
    arguments = parser.parse_args()
    paths = arguments.onnx / "encoder_model.onnx", arguments.onnx / "decoder_model_merged.onnx"
    recognizer = convert(*paths, arguments.tokenizer, read_config(RecognizerConfig, CONFIG))
    differences = compare(recognizer.model, *paths)
    print(
        "largest difference from onnxruntime:", ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
    )
    if max(differences.values()) > 1e-3:
        raise SystemExit("The converted model differs from onnxruntime.")
    card = arguments.output / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else None
    recognizer.save(arguments.output, card=text, bits=arguments.bits)


if __name__ == "__main__":
    main()
