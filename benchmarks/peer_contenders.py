"""The searches of other libraries, as contenders of `peers.py`.

Each class imports its library when it is made, in the environment that has it. All are made with a workload, sources,
the beam size and this library's weights, or ignore the weights if their model is a different one. `run` searches once.
`compare` returns how far the tokens are from the reference's, or nothing if the weights are not the same.
"""

import sys
import tempfile
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch_layout as layout
from workloads import END, MAX_LENGTH, NEVER_WRITTEN, START, UNKNOWN, TransformerWorkload, Workload

Arrays = dict[str, np.ndarray]


class SpeechBrain:
    """`S2SRNNBeamSearcher`, or the greedy searcher. Its decoder feeds the context back, not the attentional vector."""

    def __init__(self, workload: Workload, batch: dict, beam_size: int, weights: Arrays):
        import torch

        try:
            import torchaudio  # noqa: F401
        except OSError:  # it was built for CUDA; SpeechBrain imports it, but no search uses it
            sys.modules["torchaudio"] = mock.MagicMock()
        from speechbrain.decoders import S2SRNNBeamSearcher, S2SRNNGreedySearcher
        from speechbrain.nnet.linear import Linear
        from speechbrain.nnet.RNN import AttentionalRNNDecoder

        units, attention_units = workload.units, workload.attention_units
        output = Linear(n_neurons=workload.vocabulary, input_size=units)
        with torch.no_grad():
            output.w.bias[list(NEVER_WRITTEN)] = -1e4
        options = {
            "embedding": torch.nn.Embedding(workload.vocabulary, workload.embedding_dim),
            "decoder": AttentionalRNNDecoder(
                "lstm",
                "content",
                units,
                attention_units,
                1,
                enc_dim=workload.source_dim,
                input_size=workload.embedding_dim,
            ),
            "linear": output,
            "bos_index": START,
            "eos_index": END,
            "min_decode_ratio": 0.0,
            "max_decode_ratio": (MAX_LENGTH + 0.5) / workload.source_length,
        }
        beam_options = {"beam_size": beam_size, "using_eos_threshold": False, "length_normalization": False}
        self.search = (
            S2SRNNGreedySearcher(**options) if beam_size == 1 else S2SRNNBeamSearcher(**options, **beam_options)
        )
        self.search.eval()
        # The beam search leaves the last token out, as if it ended the sequence.
        self.length = MAX_LENGTH if beam_size == 1 else MAX_LENGTH - 1
        self.memory = torch.from_numpy(batch["source"]["features"])
        self.lengths = torch.ones(workload.batch)

    def run(self) -> None:
        hypotheses, *_ = self.search(self.memory, self.lengths)
        check_lengths(hypotheses, self.length)

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        return {}


class JoeyNMT:
    """The recurrent decoder of JoeyNMT with input feeding and its searches."""

    def __init__(self, workload: Workload, batch: dict, beam_size: int, weights: Arrays):
        import torch
        from joeynmt.decoders import RecurrentDecoder
        from joeynmt.embeddings import Embeddings
        from joeynmt.model import Model
        from joeynmt.search import beam_search, greedy
        from torch_contenders import fill

        encoder = SimpleNamespace(output_size=workload.source_dim)
        decoder = RecurrentDecoder(
            "lstm", workload.embedding_dim, workload.units, encoder, vocab_size=workload.vocabulary, init_hidden="zero"
        )
        embedding = Embeddings(workload.embedding_dim, vocab_size=workload.vocabulary, padding_idx=0)
        words = SimpleNamespace(
            pad_index=0, bos_index=START, eos_index=END, sep_index=None, unk_index=UNKNOWN, specials=[], lang_tags=[]
        )
        model = Model(encoder, decoder, None, embedding, words, words)
        fill(model, self.layout(weights))
        self.options = {
            "model": model.eval(),
            "encoder_output": torch.from_numpy(batch["source"]["features"]),
            "encoder_hidden": torch.zeros(workload.batch, workload.source_dim),
            "src_mask": torch.ones(workload.batch, 1, workload.source_length, dtype=torch.bool),
            "max_output_length": MAX_LENGTH,
            "min_output_length": MAX_LENGTH,
        }
        self.search = greedy
        if beam_size > 1:
            self.search = beam_search
            self.options |= {"beam_size": beam_size, "alpha": -1}

    @staticmethod
    def layout(arrays: Arrays) -> Arrays:
        readout = "decoder/readout"
        kernels = [arrays[f"{readout}/{part}/kernel"] for part in ("hidden", "context")]
        return {
            "trg_embed.lut.weight": arrays["decoder/embedding/embeddings"],
            "decoder.att_vector_layer.weight": np.concatenate(kernels).T,
            "decoder.att_vector_layer.bias": arrays[f"{readout}/hidden/bias"],
            "decoder.output_layer.weight": arrays[f"{readout}/output/kernel"].T,
            "decoder.attention.energy_layer.weight": arrays["decoder/attention/score_kernel"][None],
            **layout.linear(arrays, "decoder/attention/query", "decoder.attention.query_layer"),
            **layout.linear(arrays, "decoder/attention/key", "decoder.attention.key_layer"),
            **layout.decoder_cell(arrays, "decoder/cell_0", "decoder.rnn", "_l0"),
        }

    def run(self) -> None:
        token_ids, *_ = self.search(**self.options)
        self.token_ids = np.asarray(token_ids)
        check_lengths(self.token_ids)

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        return compare_tokens(reference, self.token_ids)


class HuggingFace:
    """`generate` of Transformers."""

    def __init__(self, workload: TransformerWorkload, batch: dict, beam_size: int, weights: Arrays):
        import torch

        self.model = make_pegasus(workload, weights)
        self.token_ids = torch.from_numpy(batch["source"]["token_ids"]).long()
        self.options = {
            "attention_mask": torch.ones_like(self.token_ids),
            "num_beams": beam_size,
            "do_sample": False,
            "min_new_tokens": MAX_LENGTH,
            "max_new_tokens": MAX_LENGTH,
        }

    def run(self) -> None:
        self.written = self.model.generate(self.token_ids, **self.options).numpy()[:, 1:]
        check_lengths(self.written)

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        return compare_tokens(reference, self.written)


class CTranslate2:
    """The engine of OpenNMT, with the weights by way of Hugging Face's model."""

    compute_type = "float32"

    def __init__(self, workload: TransformerWorkload, batch: dict, beam_size: int, weights: Arrays):
        import ctranslate2
        from ctranslate2.converters.transformers import PegasusLoader

        model = make_pegasus(workload, weights)
        spec = PegasusLoader().get_model_spec(model)
        words = [str(token) for token in range(workload.vocabulary)]
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.bos_token = spec.config.decoder_start_token = words[START]
        spec.config.eos_token, spec.config.unk_token = words[END], words[UNKNOWN]
        spec.config.add_source_bos = spec.config.add_source_eos = False
        spec.validate()
        spec.optimize(quantization=self.compute_type)
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            self.translator = ctranslate2.Translator(
                folder, compute_type=self.compute_type, inter_threads=1, intra_threads=1
            )
        self.source = [[words[token] for token in row] for row in batch["source"]["token_ids"]]
        self.options = {
            "beam_size": beam_size,
            "min_decoding_length": MAX_LENGTH,
            "max_decoding_length": MAX_LENGTH,
        }

    def run(self) -> None:
        results = self.translator.translate_batch(self.source, **self.options)
        self.written = np.array([[int(word) for word in result.hypotheses[0]] for result in results])
        check_lengths(self.written)

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        return compare_tokens(reference, self.written)


class CTranslate2Int8(CTranslate2):
    """Weights and activations of the products as 8-bit integers, so that some tokens are different."""

    compute_type = "int8"

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        different = compare_tokens(reference, self.written)["token_ids"]
        print(f"CTranslate2, int8: {1 - different:.0%} of the sequences are the same", file=sys.stderr)
        return {}


class KerasHub:
    """BART, greedy: norms after each part and learned positions, otherwise of the same sizes."""

    def __init__(self, workload: TransformerWorkload, batch: dict, beam_size: int, weights: Arrays):
        import keras_hub

        backbone = keras_hub.models.BartBackbone(
            workload.vocabulary,
            workload.layers,
            workload.heads,
            workload.width,
            workload.hidden_dim,
            dropout=0.0,
            max_sequence_length=max(workload.source_length, MAX_LENGTH + 1),
        )
        self.model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
        self.model.compile(sampler="greedy")
        token_ids = batch["source"]["token_ids"]
        written = np.zeros((workload.batch, MAX_LENGTH + 1), "int32")
        written[:, 0] = START
        self.inputs = {
            "encoder_token_ids": token_ids,
            "encoder_padding_mask": np.ones_like(token_ids),
            "decoder_token_ids": written,
            "decoder_padding_mask": (written == START).astype("int32"),
        }

    def run(self) -> None:
        written = self.model.generate(self.inputs, stop_token_ids=None)
        check_lengths(written["decoder_token_ids"][:, 1:])

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        return {}


class Pocketsphinx:
    """The English model that comes with pocketsphinx."""

    def __init__(self, waveforms: list[np.ndarray], sample_rate: int, weights: Arrays):
        from pocketsphinx import Decoder

        self.decoder = Decoder(samprate=sample_rate, loglevel="FATAL")
        self.recordings = [(waveform * 32767).astype("int16").tobytes() for waveform in waveforms]

    def run(self) -> None:
        self.texts = []
        for recording in self.recordings:
            self.decoder.start_utt()
            self.decoder.process_raw(recording, full_utt=True)
            self.decoder.end_utt()
            self.texts.append(self.decoder.hyp().hypstr)

    def compare(self, reference: list[str]) -> dict[str, float]:
        print(f"attention_apps: {reference}\npocketsphinx: {self.texts}", file=sys.stderr)
        return {}


def make_pegasus(workload: TransformerWorkload, weights: Arrays) -> Any:
    """Hugging Face's model that is a Transformer like ours: norms before each part, scaled embeddings, sinusoids."""
    import torch
    from torch_contenders import fill
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    sides = ("encoder", "decoder")
    config = PegasusConfig(
        vocab_size=workload.vocabulary,
        d_model=workload.width,
        max_position_embeddings=max(workload.source_length, MAX_LENGTH + 1),
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        **{f"{side}_layers": workload.layers for side in sides},
        **{f"{side}_attention_heads": workload.heads for side in sides},
        **{f"{side}_ffn_dim": workload.hidden_dim for side in sides},
    )
    # CTranslate2 asks for these two, which only older versions of Transformers set.
    config.normalize_before, config.normalize_embedding = True, False
    model = PegasusForConditionalGeneration(config).eval()
    laid_out = {"model.shared.weight": weights["encoder/embedding/embeddings"]}
    for side in sides:
        laid_out[f"model.{side}.embed_positions.weight"] = sinusoids(config.max_position_embeddings, workload.width)
        laid_out |= layout.norm(weights, f"{side}/norm", f"model.{side}.layer_norm")
        for index in range(workload.layers):
            laid_out |= pegasus_layer(weights, f"{side}/block_{index}", f"model.{side}.layers.{index}")
    fill(model, laid_out)
    model.final_logits_bias = torch.from_numpy(weights["decoder/output_bias"])[None]
    return model


def pegasus_layer(arrays: Arrays, ours: str, theirs: str) -> Arrays:
    """The parts of an encoder's or a decoder's block."""
    parts = {"attention": "self_attn"} if ours.startswith("encoder") else {"self": "self_attn", "cross": "encoder_attn"}
    laid_out = {
        **layout.norm(arrays, f"{ours}/feed_forward/norm", f"{theirs}.final_layer_norm"),
        **layout.linear(arrays, f"{ours}/feed_forward/hidden", f"{theirs}.fc1"),
        **layout.linear(arrays, f"{ours}/feed_forward/output", f"{theirs}.fc2"),
    }
    for part, their_part in parts.items():
        name = part if part == "attention" else f"{part}_attention"
        laid_out |= layout.norm(arrays, f"{ours}/{part}_norm", f"{theirs}.{their_part}_layer_norm")
        for role, their_role in {"query": "q", "key": "k", "value": "v", "output": "out"}.items():
            laid_out |= layout.linear(arrays, f"{ours}/{name}/{role}", f"{theirs}.{their_part}.{their_role}_proj")
    return laid_out


def sinusoids(length: int, width: int) -> np.ndarray:
    """Our position encoding, in which sines and cosines alternate, `(length, width)`."""
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width).astype("float32")


def check_lengths(sequences: Any, expected: int = MAX_LENGTH) -> None:
    """Stops a contender that writes more or fewer tokens than the others."""
    lengths = {len(sequence) for sequence in sequences}
    if lengths != {expected}:
        raise ValueError(f"Sequences must have {expected} tokens. Received: lengths={sorted(lengths)}")


def compare_tokens(reference: dict[str, Any], token_ids: np.ndarray) -> dict[str, float]:
    """The share of items with other best tokens."""
    return {"token_ids": float((reference["token_ids"] != token_ids).any(axis=1).mean())}
