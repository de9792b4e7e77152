"""What training minimizes: cross-entropy with teacher forcing, or the negative expected reward of a metric."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from attention_apps.checks import require
from attention_apps.constants import PADDING, START, VERY_NEGATIVE
from attention_apps.decoding.beam_search import beam_search
from attention_apps.decoding.options import DecodingOptions
from attention_apps.decoding.sampling import sample
from attention_apps.layers.coverage_attention import coverage_loss
from attention_apps.metrics import CiderScorer, bleu, cer, rouge, token_f1, wer
from attention_apps.training.config import ScheduledSamplingConfig, SelfCriticalConfig, TrainingConfig
from attention_apps.training.losses import (
    consistency_loss,
    doubly_stochastic_loss,
    guided_attention_loss,
    target_token_count,
    token_losses,
)
from attention_apps.training.train_step import run_on_shards

ExtraLoss = Callable[..., tuple[Mapping[str, tf.Tensor], Mapping[str, tf.Tensor]]]
Reward = Callable[[list[list[int]], list[int]], Sequence[float]]
# Takes texts and the references of each text.
TextReward = Callable[[Sequence[str], Sequence[Sequence[str]]], np.ndarray]

# The metrics that `make_reward` knows.
REWARDS = (
    *(f"bleu_{order}" for order in (1, 2, 3, 4)),
    *("cer", "cider", "rouge", "rouge_1", "rouge_2", "rouge_l", "token_f1", "wer"),
)
# Appended to the texts for CIDEr and BLEU. Without it the model learns to stop too early.
_LAST_WORD = "endoftext"

# The number of seeds reserved for each epoch, one per batch.
_EPOCH_SEEDS = 1_000_003


class TeacherForcing:
    """Cross-entropy of the true targets, plus the losses of the configuration and the application.

    Args:
        model: a `Seq2Seq`.
        extra_loss: `extra_loss(model, batch, outputs, losses, epoch)` returns two dicts: losses, each a sum over the
            batch, and counts, which the logs add up and which have no gradient. A loss with the name of an entry of
            `losses` replaces it. `outputs` are all outputs of the model, including the memory.
    """

    def __init__(self, model: keras.Model, config: TrainingConfig, extra_loss: ExtraLoss | None = None):
        self.model = model
        self.config = config
        self.extra_loss = extra_loss

    def signature(self, batch_signature: Any) -> Any:
        """Return the signature of the argument of `losses`, given that of the data's batches."""
        return batch_signature

    def prepare(self, parts: tuple, rows: list, position: tuple[int, int]) -> tuple:
        """Prepare each replica's part of a batch for `losses`: nothing to do here."""
        return parts

    def losses(
        self, batch: Mapping[str, Any], position: tf.Tensor, step: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], Mapping[str, tf.Tensor], tf.Tensor]:
        """Return the losses by name, each a sum over the batch, the counts by name, and the number of target tokens.

        Args:
            position: epoch and number of the batch, `(2,)`.
            step: the number of optimizer steps so far.
        """
        if self.config.consistency:  # every example twice, with different dropout
            batch = tf.nest.map_structure(lambda tensor: tf.concat([tensor, tensor], axis=0), batch)
        tokens = tf.cast(batch["tokens"], tf.int32)
        inputs, targets = tokens[..., :-1], tokens[..., 1:]
        if self.config.scheduled_sampling.probability > 0:
            inputs = self._mix(batch["source"], inputs, position, step)
        outputs = self.model({"source": batch["source"], "tokens": inputs}, return_dict=True, training=True)
        losses = self._target_losses(outputs, targets) | self._attention_losses(outputs, targets)
        counts: Mapping[str, Any] = {}
        if self.extra_loss is not None:
            more, counts = self.extra_loss(
                model=self.model, batch=batch, outputs=outputs, losses=dict(losses), epoch=position[0]
            )
            losses |= more
        return losses, counts, target_token_count(targets)

    def _target_losses(self, outputs, targets):
        of_tokens = token_losses(outputs, targets, self.config.label_smoothing)
        losses = {"cross_entropy": tf.reduce_sum(of_tokens)}
        if self.config.consistency:
            losses["consistency"] = self.config.consistency * consistency_loss(outputs["logits"], targets)
        attention = getattr(self.model.decoder, "attention", None)
        if hasattr(attention, "estimator_loss"):
            log_likelihood = -tf.reshape(tf.reduce_sum(of_tokens, axis=-1), (-1,))
            is_real = tf.reshape(tf.reduce_any(targets != PADDING, axis=-1), (-1,))  # the others are padding targets
            estimates = attention.estimator_loss(log_likelihood, outputs["attention_state"], row_mask=is_real)
            losses["hard_attention"] = tf.reduce_sum(estimates)
        return losses

    def _attention_losses(self, outputs, targets):
        config, attention = self.config, outputs["attention"]
        if attention is None and (config.doubly_stochastic or config.coverage or config.guided):
            raise ValueError("`doubly_stochastic`, `coverage` and `guided` need a decoder with attention.")
        mask = outputs["memory"].get("mask")
        losses = {}
        if config.doubly_stochastic:
            losses["doubly_stochastic"] = config.doubly_stochastic * doubly_stochastic_loss(attention, targets, mask)
        if config.coverage:
            shape = tf.shape(attention)
            rows = tf.reshape(attention, (-1, shape[-2], shape[-1]))
            is_real = tf.reshape(targets != PADDING, (-1, shape[-2]))
            losses["coverage"] = config.coverage * tf.reduce_sum(coverage_loss(rows, is_real))
        if config.guided:
            losses["guided"] = config.guided * guided_attention_loss(attention, targets, mask)
        return losses

    def _mix(self, source, inputs, position, step):
        """Scheduled sampling in two passes (Mihaylova and Martins 2019): replace some inputs by predictions."""
        probability = sampling_probability(self.config.scheduled_sampling, step)

        def mixed():
            logits = self.model({"source": source, "tokens": inputs}, training=False)
            predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)[..., :-1]
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            seed = tf.random.experimental.stateless_fold_in([self.config.seed, replica], position[0])
            seed = tf.random.experimental.stateless_fold_in(seed, position[1])
            draws = tf.random.stateless_uniform(tf.shape(predicted), seed)
            replace = (draws < probability) & (inputs[..., 1:] != PADDING)
            return tf.concat([inputs[..., :1], tf.where(replace, predicted, inputs[..., 1:])], axis=-1)

        return tf.stop_gradient(tf.cond(probability > 0, mixed, lambda: inputs))


def sampling_probability(config: ScheduledSamplingConfig, step: tf.Tensor) -> tf.Tensor:
    """The fraction of inputs that are the model's own predictions at a step."""
    since = tf.cast(step, tf.float32) - config.start_step
    reached = tf.clip_by_value((since + 1.0) / max(config.ramp_steps, 1), 0.0, 1.0)
    return config.probability * reached


class SelfCritical:
    """Policy gradient with a baseline: minimizes -(r - b) log p(sample).

    One graph draws samples at random or takes them from a beam search. Python computes their rewards. Another graph
    computes their log-probabilities by teacher forcing. The baseline is the reward of the greedy text or the mean
    reward of the source's other samples. With a temperature other than 1, log p is that of the distribution the
    samples were drawn from, except for models that copy: there it is that of the model.

    Args:
        model: a `Seq2Seq`.
        reward: `reward(hypotheses, examples)` returns a number for each hypothesis, higher is better. A hypothesis is
            a list of token ids without start and end; `examples` has the index of its training example.
        options: of the application's search. Random samples use only its `max_length` and `banned_tokens`.

    Reference:
        Rennie et al. 2017, equations 10 to 13; Luo 2020 for the mean of the other samples; Cornia et al. 2020, "Meshed-
        Memory Transformer", section 3.3, for samples from a beam search.
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
        """Return the signature of the argument of `losses`, given that of the data's batches."""
        return {
            "source": batch_signature["source"],
            "tokens": tf.TensorSpec((None, self.config.samples, None), tf.int32),
            "advantages": tf.TensorSpec((None, self.config.samples), tf.float32),
        }

    def prepare(self, parts: tuple, rows: list[np.ndarray], position: tuple[int, int]) -> tuple:
        """Sample texts for each replica's part of a batch and compute their rewards.

        Args:
            rows: the indices of the examples of each part.
            position: epoch and number of the batch. The samples depend only on these and the weights.
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
        """Return the loss, a sum over the batch, no counts, and the number of sampled tokens."""
        inputs, targets = batch["tokens"][..., :-1], batch["tokens"][..., 1:]
        outputs = self.model({"source": batch["source"], "tokens": inputs}, return_dict=True, training=True)
        logits = tf.cast(outputs["logits"], tf.float32)
        if outputs.get("switch") is None:  # a mixture with copying has no logits to scale
            logits /= self.options.temperature
        banned = np.zeros(logits.shape[-1], np.float32)
        banned[list(self.options.banned_tokens)] = VERY_NEGATIVE
        outputs["logits"] = logits + banned  # of the sampling distribution
        of_samples = tf.reduce_sum(token_losses(outputs, targets), axis=-1)  # (B, N)
        return {"self_critical": tf.reduce_sum(of_samples * batch["advantages"])}, {}, target_token_count(targets)

    def _sample(self, sources):
        """Token ids `(batch, samples, length)` of each part. With the greedy baseline, the greedy text is the last."""

        def run(source):
            memory = self.model.encode(source)
            step = self.model.decoder.step
            state = self.model.decoder.init_state(memory, self.options.max_length)
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
        """The argument of `losses` for one replica's part."""
        rewards = np.zeros(ids.shape[:2], np.float32)
        if len(examples):  # otherwise the part is one row of padding
            hypotheses = []
            for row in ids.reshape(-1, ids.shape[-1]).tolist():
                stops = [row.index(stop) for stop in (self.options.end_token, PADDING) if stop in row]
                hypotheses.append(row[: min(stops, default=len(row))])
            repeated = np.repeat(examples, ids.shape[1]).tolist()
            rewards = np.asarray(self.reward(hypotheses, repeated), np.float32).reshape(ids.shape[:2])
        if self.config.baseline == "greedy":
            baseline = rewards[:, -1:]
        else:
            baseline = (rewards.sum(axis=1, keepdims=True) - rewards) / (self.config.samples - 1)
        advantages = rewards - baseline
        ids, advantages = ids[:, : self.config.samples], advantages[:, : self.config.samples]
        if not len(examples):
            ids = np.zeros_like(ids)
        used = max(int((ids != PADDING).sum(axis=-1).max()), 1)
        tokens = np.pad(ids[..., :used], ((0, 0), (0, 0), (1, 0)), constant_values=START)
        return {"source": source, "tokens": tf.constant(tokens), "advantages": tf.constant(advantages)}


def _sampling_options(config, options):
    banned = (PADDING, START, *options.banned_tokens)
    if config.from_beam:
        size = config.samples
        return replace(options, beam_size=size, num_best=size, banned_tokens=banned, temperature=config.temperature)
    return DecodingOptions(
        beam_size=1, max_length=options.max_length, banned_tokens=banned, temperature=config.temperature
    )


def make_reward(metric: str, references: Sequence[Sequence[str]]) -> TextReward:
    """Return the reward function of a metric: a number for each text, higher is better.

    Error rates are negated and measured against the closest reference. "rouge" is the mean of ROUGE-1, 2 and L. If all
    references are blank, as for noise, an empty text gets 0 and any other text -1.

    Args:
        references: the references of all training data, from which CIDEr computes how rare a phrase is.
    """
    require(metric in REWARDS, "metric", f"one of {', '.join(REWARDS)}", metric)
    score = _make_score(metric, [wanted for wanted in references if any(map(str.strip, wanted))])

    def reward(texts: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        scores = -np.array([bool(text.strip()) for text in texts], float)
        scored = [index for index, wanted in enumerate(references) if any(map(str.strip, wanted))]
        if scored:
            scores[scored] = score([texts[index] for index in scored], [references[index] for index in scored])
        return scores

    return reward


def _make_score(metric, references):
    """Return the reward function for texts whose references are not blank."""

    def ended(texts):
        return [f"{text} {_LAST_WORD}" for text in texts]

    if metric == "cider":
        scorer = CiderScorer([ended(texts) for texts in references])
        return lambda texts, wanted: scorer.score(ended(texts), [ended(one) for one in wanted]).items
    if metric == "token_f1":
        return lambda texts, wanted: token_f1(texts, wanted).items
    kind = metric.split("_")[-1]
    if metric.startswith("bleu"):
        return lambda texts, wanted: bleu(ended(texts), [ended(one) for one in wanted], int(kind)).items
    if metric.startswith("rouge"):
        kinds = ("1", "2", "l") if metric == "rouge" else (kind,)
        return lambda texts, wanted: np.mean([rouge(texts, wanted, kind).items for kind in kinds], axis=0)
    error_rate = {"wer": wer, "cer": cer}[metric]

    def negated_least_errors(texts, wanted):
        pairs = [(text, reference) for text, one in zip(texts, wanted, strict=True) for reference in one]
        rates = error_rate(*zip(*pairs, strict=True)).items
        firsts = np.cumsum([0, *map(len, wanted)])[:-1]
        return -np.minimum.reduceat(rates, firsts)

    return negated_least_errors
