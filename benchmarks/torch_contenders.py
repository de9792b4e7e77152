"""The same training step and a search written by hand in PyTorch, as contenders of the benchmarks."""

from typing import Any

import numpy as np
import torch
from parity import compare_outputs, compare_searches
from torch import nn
from torch_beam_search import torch_beam_search
from torch_captioner import TorchCaptioner
from torch_recognizer import TorchRecognizer
from torch_summarizer import TorchSummarizer
from workloads import BETAS, CLIP_NORM, EPSILON, LEARNING_RATE, MAX_LENGTH, NEVER_WRITTEN, Workload

MODELS = {"captioner": TorchCaptioner, "recognizer": TorchRecognizer, "summarizer": TorchSummarizer}


class TorchTraining:
    """Forward, backward, clipping, Adam (its fused kernel); with `compiled`, the loss by `torch.compile`."""

    def __init__(self, workload: Workload, batch: dict, weights: dict, compiled: bool = False):
        use_threads()
        self.first_weights = weights
        self.model = MODELS[workload.application](workload)
        load_weights(self.model, weights)
        self.batch = as_tensors(batch)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, LEARNING_RATE, BETAS, EPSILON, fused=True)
        self.loss = torch.compile(self.model.loss) if compiled else self.model.loss

    def run(self) -> float:
        """Makes a step and returns its loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(**self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, CLIP_NORM)
        self.optimizer.step()
        return loss.item()

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        """How far logits and gradients are from the reference's, with the first weights."""
        load_weights(self.model, self.first_weights)
        self.optimizer.zero_grad()
        self.loss(**self.batch).backward()
        gradients = {name: p.grad.numpy() for name, p in self.model.named_parameters() if p.grad is not None}
        with torch.no_grad():
            logits = self.model(self.batch["source"], self.batch["tokens"][..., :-1]).numpy()
        return compare_outputs(reference["logits"], logits, self.model.layout(reference["gradients"]), gradients)


class TorchDecoding:
    """Encoder and beam search, eagerly; with `compiled`, each step by `torch.compile`."""

    def __init__(self, workload: Workload, batch: dict, beam_size: int, weights: dict, compiled: bool = False):
        use_threads()
        self.model = MODELS[workload.application](workload).eval()
        load_weights(self.model, weights)
        self.source = as_tensors(batch["source"])
        self.beam_size = beam_size
        if compiled:
            self.model.step = torch.compile(self.model.step)

    def run(self) -> None:
        self._search()

    def compare(self, reference: dict[str, Any]) -> dict[str, float]:
        tokens, scores = self._search()
        return compare_searches(reference, tokens.numpy(), scores.numpy())

    def _search(self):
        return torch_beam_search(self.model, self.source, self.beam_size, MAX_LENGTH, list(NEVER_WRITTEN))


def use_threads() -> None:
    """As many threads as the environment says, also for what PyTorch does outside of OpenMP."""
    torch.set_num_interop_threads(1)


def load_weights(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Fills a model with this library's weights; parameters that it has no counterpart for stay zero."""
    fill(model, model.layout(weights))


def fill(model: nn.Module, laid_out: dict[str, np.ndarray]) -> None:
    """Fills a model with arrays by the names of its parameters; the others become zero."""
    laid_out = dict(laid_out)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in laid_out:
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(laid_out.pop(name))))
            else:
                parameter.zero_().requires_grad_(False)
    if laid_out:
        raise ValueError(f"The PyTorch model has no parameters {sorted(laid_out)}")


def as_tensors(arrays: Any) -> Any:
    if isinstance(arrays, dict):
        return {name: as_tensors(array) for name, array in arrays.items()}
    tensor = torch.from_numpy(arrays)
    return tensor.long() if tensor.dtype == torch.int32 else tensor
