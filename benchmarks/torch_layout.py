"""This library's weights in PyTorch's names and layout.

Every entry goes to one place and stays as it is, so that gradients are laid out by the same functions.
"""

import numpy as np

Arrays = dict[str, np.ndarray]


def linear(arrays: Arrays, ours: str, theirs: str) -> Arrays:
    """A dense layer as an `nn.Linear`, with or without a bias."""
    laid_out = {f"{theirs}.weight": arrays[f"{ours}/kernel"].T}
    if f"{ours}/bias" in arrays:
        laid_out[f"{theirs}.bias"] = arrays[f"{ours}/bias"]
    return laid_out


def norm(arrays: Arrays, ours: str, theirs: str) -> Arrays:
    return {f"{theirs}.weight": arrays[f"{ours}/gamma"], f"{theirs}.bias": arrays[f"{ours}/beta"]}


def bidirectional_lstm(arrays: Arrays, ours: str, theirs: str) -> Arrays:
    """Keras' LSTMs as one `nn.LSTM`, whose second bias stays at zero."""
    laid_out = {}
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        cell = f"{ours}/{direction}/lstm_cell"
        laid_out[f"{theirs}.weight_ih_l0{suffix}"] = arrays[f"{cell}/kernel"].T
        laid_out[f"{theirs}.weight_hh_l0{suffix}"] = arrays[f"{cell}/recurrent_kernel"].T
        laid_out[f"{theirs}.bias_ih_l0{suffix}"] = arrays[f"{cell}/bias"]
    return laid_out


def decoder_cell(arrays: Arrays, ours: str, theirs: str, suffix: str = "") -> Arrays:
    """A decoder's cell as an `nn.LSTMCell`, or an `nn.LSTM` with a suffix, fed with words and what else is fed."""
    kernel, recurrent = arrays[f"{ours}/ahead/kernel"], arrays[f"{ours}/recurrent/kernel"]
    units = recurrent.shape[1] // 4
    return {
        f"{theirs}.weight_ih{suffix}": np.concatenate([kernel, recurrent[:-units]]).T,
        f"{theirs}.weight_hh{suffix}": recurrent[-units:].T,
        f"{theirs}.bias_ih{suffix}": arrays[f"{ours}/ahead/bias"],
    }


def attention(arrays: Arrays, theirs: str) -> Arrays:
    """Query, key and score of an additive attention."""
    return {
        **linear(arrays, "decoder/attention/query", f"{theirs}.query"),
        **linear(arrays, "decoder/attention/key", f"{theirs}.key"),
        f"{theirs}.score.weight": arrays["decoder/attention/score_kernel"][None],
    }
