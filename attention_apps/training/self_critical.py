"""Self-critical training: the metric itself is the reward."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.sampling import sample
from attention_apps.models.tokens import PADDING, START
from attention_apps.training.config import SelfCriticalConfig
from attention_apps.training.distribution import run_on_shards
from attention_apps.training.losses import target_token_count, token_losses

Reward = Callable[[list[list[int]], list[int]], Sequence[float]]

# Of the seeds of one epoch, one for each batch.
_EPOCH_SEEDS = 1_000_003
# Added to the logits of banned tokens.
_NEVER = -1e9


class SelfCritical:
    """Makes sampled texts more likely that are better than a baseline, and the others less: -(r - b) log p(sample).

    Samples are drawn at random, or are the best of a beam search, in one graph; they are rewarded in Python, and their
    log-probabilities come from teacher forcing in another graph. The baseline is the reward of the greedy text, or the
    mean of those of the source's other samples. With a temperature other than 1 samples are more, or less, varied than
    the model's own; log p is that of the distribution they were drawn from, except where words can be copied: there it
    is the model's own.

    Args:
        model: a `Seq2Seq`.
        reward: `reward(hypotheses, examples)`, one figure for each hypothesis, more is better. A hypothesis is a list
            of token ids without start and end; beside it stands the index of its example among the training data.
        options: of the application's own search. At random, samples have its `max_length` and `banned_tokens`.

    Reference:
        Rennie et al. 2017, equations 10 to 13; Luo 2020 for the mean of the other samples; Cornia et al. 2020, "Meshed-
        Memory Transformer", section 3.3, for those of a beam search.
    """

    def __init__(
        self,
        model: keras.Model,
        config: SelfCriticalConfig,
        reward: Reward,
        options: DecodingOptions,
        seed: int = 0,
    ):
        estimator = getattr(getattr(model.decoder, "attention", None), "estimator", "straight_through")
        if estimator != "straight_through":
            raise ValueError(
                "`estimator` of hard attention must be 'straight_through' in self-critical training, so that a sample "
                f"has the probability with which it was drawn. Received: estimator={estimator!r}"
            )
        self.model = model
        self.config = config
        self.reward = reward
        self.seed = seed
        self.options = _sampling_options(config, options)
        self.strategy = tf.distribute.get_strategy()
        self._seeds = keras.random.SeedGenerator(seed)
        self._sample_graph = tf.function(self._sample, reduce_retracing=True, autograph=False)

    def signature(self, batch_signature: Any) -> Any:
        """The signature of what `losses` takes, given that of the data's batches."""
        return {
            "source": batch_signature["source"],
            "tokens": tf.TensorSpec((None, self.config.samples, None), tf.int32),
            "advantages": tf.TensorSpec((None, self.config.samples), tf.float32),
        }

    def prepare(self, parts: tuple, rows: list[np.ndarray], position: tuple[int, int]) -> tuple:
        """Samples and rewards texts for each replica's part of a batch.

        Args:
            rows: for each part, the indices of its examples.
            position: epoch and number of the batch; the samples depend on them and the weights only.
        """
        self._seeds.state.assign([self.seed, position[0] * _EPOCH_SEEDS + position[1]])
        sources = tuple(part["source"] for part in parts)
        drawn = self._sample_graph(sources)
        return tuple(
            self._rewarded(source, ids.numpy(), examples)
            for source, ids, examples in zip(sources, drawn, rows, strict=True)
        )

    def losses(
        self, batch: Mapping[str, Any], position: tf.Tensor, step: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], tf.Tensor]:
        """The named loss, a sum over the batch, no counts, and the number of sampled tokens."""
        inputs, targets = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        outputs = self.model({"source": batch["source"], "tokens": inputs}, in_full=True, training=True)
        outputs["logits"] = self._sampled_logits(outputs)
        of_samples = tf.reduce_sum(token_losses(outputs, targets), axis=-1)  # (B, N)
        return {"self_critical": tf.reduce_sum(of_samples * batch["advantages"])}, {}, target_token_count(targets)

    def _sampled_logits(self, outputs):
        """The logits of the distribution that was sampled from."""
        logits = tf.cast(outputs["logits"], tf.float32)
        if outputs.get("switch") is None:  # a mixture with copying has no logits to divide
            logits /= self.options.temperature
        banned = np.zeros(logits.shape[-1], np.float32)
        banned[list(self.options.banned_tokens)] = _NEVER
        return logits + banned

    def _sample(self, sources):
        """Token ids `(batch, samples, length)` of each part; with the greedy baseline, the greedy text comes last."""

        def run(source):
            memory = self.model.encode(source)
            step, state = self.model.decoder.step, self.model.decoder.init_state(memory)
            if self.config.from_beam:
                drawn = beam_search(step, state, self.options).token_ids
            else:
                drawn = sample(step, state, self.options, self.config.samples, seed=self._seeds).token_ids
            if self.config.baseline == "mean":
                return drawn
            greedy = beam_search(step, state, replace(self.options, beam_size=1, num_best=1)).token_ids
            return tf.concat([drawn, greedy], axis=1)

        return run_on_shards(self.strategy, run, sources)

    def _rewarded(self, source, ids, examples):
        """What `losses` takes, of one replica's part."""
        rewards = np.zeros(ids.shape[:2], np.float32)
        if len(examples):  # else the part is a row of zeros, which counts nowhere
            hypotheses = [_words(row, self.options.end_token) for row in ids.reshape(-1, ids.shape[-1])]
            repeated = np.repeat(examples, ids.shape[1]).tolist()
            rewards = np.asarray(self.reward(hypotheses, repeated), np.float32).reshape(ids.shape[:2])
        advantages = rewards - self._baseline(rewards)
        ids, advantages = ids[:, : self.config.samples], advantages[:, : self.config.samples]
        if not len(examples):
            ids = np.zeros_like(ids)
        used = max(int((ids != PADDING).sum(axis=-1).max()), 1)
        tokens = np.pad(ids[..., :used], ((0, 0), (0, 0), (1, 0)), constant_values=START)
        return {"source": source, "tokens": tf.constant(tokens), "advantages": tf.constant(advantages)}

    def _baseline(self, rewards):
        if self.config.baseline == "greedy":
            return rewards[:, -1:]
        count = self.config.samples
        return (rewards.sum(axis=1, keepdims=True) - rewards) / (count - 1)


def _sampling_options(config, options):
    banned = (PADDING, START, *options.banned_tokens)
    if config.from_beam:
        size = config.samples
        return replace(options, beam_size=size, num_best=size, banned_tokens=banned, temperature=config.temperature)
    return DecodingOptions(
        beam_size=1, max_length=options.max_length, banned_tokens=banned, temperature=config.temperature
    )


def _words(ids, end_token):
    """The ids before the end token or the padding."""
    ids = ids.tolist()
    stops = [ids.index(stop) for stop in (end_token, PADDING) if stop in ids]
    return ids[: min(stops, default=len(ids))]
