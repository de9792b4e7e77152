"""A listener and a speller in PyTorch: the counterpart of `our_models.make_model` for a recognizer."""

import torch
import torch_layout as layout
from torch import nn
from torch.nn import functional
from workloads import Workload

EPSILON = 1e-3  # of all Keras normalisations


class Listener(nn.Module):
    """Two convolutions that halve the time, then residual bidirectional LSTMs."""

    def __init__(self, workload: Workload):
        super().__init__()
        width, filters = 2 * workload.encoder_units, workload.encoder_filters
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, filters, 3, stride=2, padding=1, bias=False) for channels in (1, filters)
        )
        self.convolution_norms = nn.ModuleList(nn.BatchNorm2d(filters, EPSILON) for _ in range(2))
        self.projection = nn.Linear(filters * -(-workload.source_dim // 4), width)
        self.layers = nn.ModuleList(
            nn.LSTM(width, workload.encoder_units, batch_first=True, bidirectional=True)
            for _ in range(workload.encoder_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, EPSILON) for _ in range(workload.encoder_layers + 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        values = features.unsqueeze(1)
        for convolution, norm in zip(self.convolutions, self.convolution_norms):
            values = torch.relu(norm(convolution(values)))  # (B, F, T, M)
        values = self.norms[0](self.projection(values.permute(0, 2, 3, 1).flatten(2)))
        for layer, norm in zip(self.layers, self.norms[1:]):
            values = norm(values + layer(values)[0])
        return values

    def layout(self, arrays: layout.Arrays) -> layout.Arrays:
        laid_out = layout.linear(arrays, "encoder/convolutions/projection", "projection")
        for index in range(2):
            kernel = arrays[f"encoder/convolutions/convolution_{index}/kernel"]
            laid_out[f"convolutions.{index}.weight"] = kernel.transpose(3, 2, 0, 1)
            laid_out |= layout.norm(arrays, f"encoder/convolutions/norm_{index}", f"convolution_norms.{index}")
        for index in range(len(self.layers)):
            laid_out |= layout.bidirectional_lstm(arrays, f"encoder/layer_{index}", f"layers.{index}")
        for index in range(len(self.norms)):
            laid_out |= layout.norm(arrays, f"encoder/norm_{index}", f"norms.{index}")
        return {f"listener.{name}": array for name, array in laid_out.items()}


class LocationSensitiveAttention(nn.Module):
    """v · tanh(W q + V k + U f + b), where f is a convolution of the weights before.

    Queries `(rows, dim)` come from one or more copies of each item and share its keys and values.
    """

    def __init__(self, query_dim: int, value_dim: int, workload: Workload):
        super().__init__()
        units, filters, width = workload.attention_units, workload.location_filters, workload.location_width
        self.query = nn.Linear(query_dim, units, bias=False)
        self.key = nn.Linear(value_dim, units)
        self.location = nn.Conv1d(1, filters, width, padding=width // 2, bias=False)
        self.location_key = nn.Linear(filters, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, before: torch.Tensor):
        features = self.location(before.unsqueeze(1)).transpose(1, 2)  # (B N, S, F)
        hidden = (self.query(query).unsqueeze(1) + self.location_key(features)).unflatten(0, (len(keys), -1))
        weights = self.score(torch.tanh(hidden + keys.unsqueeze(1))).squeeze(3).softmax(dim=2)  # (B, N, S)
        return (weights @ values).flatten(0, 1), weights.flatten(0, 1)


class TorchRecognizer(nn.Module):
    """The listener, and a speller with location-sensitive attention before its LSTM."""

    def __init__(self, workload: Workload):
        super().__init__()
        units, dim = workload.units, workload.memory_dim
        self.listener = Listener(workload)
        self.embedding = nn.Embedding(workload.vocabulary, workload.embedding_dim)
        self.attention = LocationSensitiveAttention(units, dim, workload)
        self.cell = nn.LSTMCell(workload.embedding_dim + dim, units)
        self.initial_state = nn.Linear(dim, 2 * units)
        self.hidden_readout = nn.Linear(units, units)
        self.context_readout = nn.Linear(dim, units, bias=False)
        self.output = nn.Linear(units, workload.vocabulary)

    def layout(self, arrays: layout.Arrays) -> layout.Arrays:
        return {
            **self.listener.layout(arrays),
            "embedding.weight": arrays["decoder/embedding/embeddings"],
            **layout.attention(arrays, "attention"),
            "attention.location.weight": arrays["decoder/attention/location_filters"].T[:, None],
            "attention.location_key.weight": arrays["decoder/attention/location_kernel"].T,
            **layout.decoder_cell(arrays, "decoder/cell_0", "cell"),
            **layout.linear(arrays, "decoder/initial_state", "initial_state"),
            **layout.linear(arrays, "decoder/readout/hidden", "hidden_readout"),
            **layout.linear(arrays, "decoder/readout/context", "context_readout"),
            **layout.linear(arrays, "decoder/readout/output", "output"),
        }

    def forward(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Logits `(batch, time, vocabulary)`."""
        memory, state = self.begin(source, 1)
        steps = []
        for word in self.embedding(tokens).unbind(1):
            state, context = self.advance(word, memory, state)
            steps.append((state[0], context))
        return self.readout(*(torch.stack(parts, dim=1) for parts in zip(*steps)))

    def loss(self, source: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        logits = self(source, tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def begin(self, source: dict[str, torch.Tensor], copies: int):
        """What stays the same, one row for each item, and the state, one for each of the item's copies."""
        values = self.listener(source["features"])
        first = torch.tanh(self.initial_state(values.mean(dim=1)))
        state = (*first.chunk(2, dim=1), torch.zeros_like(values[:, :, 0]))
        return (values, self.attention.key(values)), tuple(part.repeat_interleave(copies, dim=0) for part in state)

    def step(self, token: torch.Tensor, memory, state):
        """Log-probabilities `(rows, vocabulary)` and the next state."""
        state, context = self.advance(self.embedding(token), memory, state)
        return self.readout(state[0], context).log_softmax(dim=1), state

    def advance(self, word: torch.Tensor, memory, state):
        values, keys = memory
        *state, before = state
        context, weights = self.attention(state[0], keys, values, before)
        return (*self.cell(torch.cat([word, context], dim=1), state), weights), context

    def readout(self, hidden: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.hidden_readout(hidden) + self.context_readout(context)))
