"""A pointer-generator in PyTorch: the counterpart of `our_models.make_model` for a summarizer."""

import math

import torch
import torch_layout as layout
from torch import nn
from torch.nn import functional
from torch_captioner import AdditiveAttention
from workloads import UNKNOWN, Workload

TINY = 1e-30  # stands for a probability of zero


class TorchSummarizer(nn.Module):
    """A bidirectional LSTM, an LSTM with additive attention after it, and copying; one embedding for all."""

    def __init__(self, workload: Workload):
        super().__init__()
        embedding_dim, units, dim = workload.embedding_dim, workload.units, workload.memory_dim
        self.vocabulary = workload.vocabulary
        self.embedding = nn.Embedding(workload.vocabulary, embedding_dim)
        self.encoder = nn.LSTM(embedding_dim, workload.encoder_units, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(embedding_dim, units, batch_first=True)
        self.attention = AdditiveAttention(units, dim, workload.attention_units)
        self.initial_state = nn.Linear(2 * dim, 2 * units)
        self.hidden_readout = nn.Linear(units, embedding_dim)
        self.context_readout = nn.Linear(dim, embedding_dim, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(workload.vocabulary))
        self.switch = nn.Linear(dim + units + embedding_dim, 1)

    @staticmethod
    def layout(arrays: layout.Arrays) -> layout.Arrays:
        return {
            "embedding.weight": arrays["encoder/embedding/embeddings"],
            "output_bias": arrays["decoder/readout/bias"],
            **layout.bidirectional_lstm(arrays, "encoder/layer_0", "encoder"),
            **layout.decoder_cell(arrays, "decoder/cell_0", "decoder", "_l0"),
            **layout.attention(arrays, "attention"),
            **layout.linear(arrays, "decoder/initial_state", "initial_state"),
            **layout.linear(arrays, "decoder/readout/hidden", "hidden_readout"),
            **layout.linear(arrays, "decoder/readout/context", "context_readout"),
            **layout.linear(arrays, "switch", "switch"),
        }

    def forward(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities `(batch, time, vocabulary + source)`."""
        logits, weights, switch, _ = self.run(tokens, *self.begin(source, 1))
        return self.mix(logits, weights, switch, source["source_ids"])

    def loss(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Looks up the targets' probabilities without making the whole mixture."""
        logits, weights, switch, _ = self.run(tokens[:, :-1], *self.begin(source, 1))
        targets = tokens[:, 1:]
        known = torch.where(targets < self.vocabulary, targets, 0)
        generated = -functional.cross_entropy(logits.flatten(0, 1), known.flatten(), reduction="none")
        generated = functional.logsigmoid(switch) + generated.unflatten(0, targets.shape)
        generated = torch.where(targets < self.vocabulary, generated, math.log(TINY))
        is_copy = source["source_ids"].unsqueeze(1) == targets.unsqueeze(2)  # (B, T, S)
        copied = torch.log((weights * is_copy).sum(dim=2).clamp(min=TINY)) + functional.logsigmoid(-switch)
        return -torch.logaddexp(generated, copied).mean()

    def begin(self, source: dict[str, torch.Tensor], copies: int):
        """What stays the same, one row for each item, and the state, one for each of the item's copies."""
        values, last = self.encoder(self.embedding(source["token_ids"]))
        last = torch.cat([last[0][0], last[1][0], last[0][1], last[1][1]], dim=1)
        first = torch.tanh(self.initial_state(last)).repeat_interleave(copies, dim=0)
        return (values, self.attention.key(values), source["source_ids"]), first.chunk(2, dim=1)

    def step(self, token: torch.Tensor, memory, state):
        """Log-probabilities `(rows, vocabulary + source)` and the next state."""
        token = torch.where(token < self.vocabulary, token, UNKNOWN).unsqueeze(1)
        logits, weights, switch, state = self.run(token, memory, state)
        beams = (len(memory[0]), -1)
        parts = (part.squeeze(1).unflatten(0, beams) for part in (logits, weights, switch))
        return self.mix(*parts, memory[2]).flatten(0, 1), state

    def run(self, tokens: torch.Tensor, memory, state):
        """Logits, attention weights, the switch before its sigmoid `(rows, time, ...)`, and the state."""
        values, keys, _ = memory
        embedded = self.embedding(tokens)
        hidden, state = self.decoder(embedded, tuple(part.unsqueeze(0).contiguous() for part in state))
        query = hidden.reshape(len(values), -1, hidden.shape[2])
        context, weights = (part.reshape(*hidden.shape[:2], -1) for part in self.attention(query, keys, values))
        vector = torch.tanh(self.hidden_readout(hidden) + self.context_readout(context))
        logits = functional.linear(vector, self.embedding.weight, self.output_bias)
        switch = self.switch(torch.cat([context, hidden, embedded], dim=2)).squeeze(2)
        return logits, weights, switch, tuple(part.squeeze(0) for part in state)

    def mix(self, logits, weights, switch, source_ids) -> torch.Tensor:
        """Log of the mixture, `(batch, time, vocabulary + source)`."""
        generate = torch.sigmoid(switch).unsqueeze(2)
        words = functional.pad(logits.softmax(dim=2) * generate, (0, weights.shape[2]))
        ids = source_ids.unsqueeze(1).expand_as(weights)
        return words.scatter_add(2, ids, weights * (1 - generate)).clamp(min=TINY).log()
