"""Show, Attend and Tell's decoder in PyTorch: the counterpart of `our_models.make_model` for a captioner."""

import torch
import torch_layout as layout
from torch import nn
from torch.nn import functional
from workloads import Workload


class AdditiveAttention(nn.Module):
    """v · tanh(W q + U k), with keys projected beforehand; queries share the source of their batch item."""

    def __init__(self, query_dim: int, value_dim: int, units: int):
        super().__init__()
        self.query = nn.Linear(query_dim, units, bias=False)
        self.key = nn.Linear(value_dim, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor):
        hidden = torch.tanh(self.query(query).unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, U)
        weights = self.score(hidden).squeeze(3).softmax(dim=2)
        return weights @ values, weights


class TorchCaptioner(nn.Module):
    """Additive attention before an LSTM, a gate on the context, deep output with tied embeddings."""

    def __init__(self, workload: Workload):
        super().__init__()
        embedding_dim, units, dim = workload.embedding_dim, workload.units, workload.memory_dim
        self.units = units
        self.embedding = nn.Embedding(workload.vocabulary, embedding_dim)
        self.attention = AdditiveAttention(units, dim, workload.attention_units)
        self.gate = nn.Linear(units, 1)
        self.cell = nn.LSTMCell(embedding_dim + dim, units)
        self.initial_state = nn.Linear(dim, 2 * units)
        self.hidden_readout = nn.Linear(units, embedding_dim)
        self.context_readout = nn.Linear(dim, embedding_dim, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(workload.vocabulary))

    @staticmethod
    def layout(arrays: layout.Arrays) -> layout.Arrays:
        return {
            "embedding.weight": arrays["decoder/embedding/embeddings"],
            "output_bias": arrays["decoder/readout/bias"],
            **layout.attention(arrays, "attention"),
            **layout.decoder_cell(arrays, "decoder/cell_0", "cell"),
            **layout.linear(arrays, "decoder/context_gate", "gate"),
            **layout.linear(arrays, "decoder/initial_state", "initial_state"),
            **layout.linear(arrays, "decoder/readout/hidden", "hidden_readout"),
            **layout.linear(arrays, "decoder/readout/context", "context_readout"),
        }

    def forward(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Logits `(batch, targets, time, vocabulary)`."""
        batch, targets, _ = tokens.shape
        memory, state = self.begin(source, targets)
        embedded = self.embedding(tokens.flatten(0, 1))  # (B N, T, E)
        steps = []
        for word in embedded.unbind(1):
            state, context = self.advance(word, memory, state)
            steps.append((state[0], context))
        hidden, context = (torch.stack(parts, dim=1) for parts in zip(*steps))
        return self.readout(hidden, context, embedded).unflatten(0, (batch, targets))

    def loss(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        logits = self(source, tokens[..., :-1])
        return functional.cross_entropy(logits.flatten(0, -2), tokens[..., 1:].flatten())

    def begin(self, source: dict[str, torch.Tensor], copies: int):
        """What stays the same, one row for each item, and the state, one for each of the item's copies."""
        values = source["features"]
        first = torch.tanh(self.initial_state(values.mean(dim=1))).repeat_interleave(copies, dim=0)
        return (values, self.attention.key(values)), first.chunk(2, dim=1)

    def step(self, token: torch.Tensor, memory, state):
        """Log-probabilities `(rows, vocabulary)` and the next state."""
        word = self.embedding(token)
        state, context = self.advance(word, memory, state)
        return self.readout(state[0], context, word).log_softmax(dim=1), state

    def advance(self, word: torch.Tensor, memory, state):
        values, keys = memory
        query = state[0].unflatten(0, (len(values), -1))
        context, _ = self.attention(query, keys, values)
        context = (context * torch.sigmoid(self.gate(query))).flatten(0, 1)
        return self.cell(torch.cat([word, context], dim=1), state), context

    def readout(self, hidden: torch.Tensor, context: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
        vector = torch.tanh(self.hidden_readout(hidden) + self.context_readout(context) + word)
        return functional.linear(vector, self.embedding.weight, self.output_bias)
