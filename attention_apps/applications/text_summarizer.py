"""Summaries of texts."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from attention_apps.applications.application import BATCH_SIZE, Application
from attention_apps.applications.passages import choose_passages, cut_into_passages, sentence_spans
from attention_apps.applications.sentence_compressor import SentenceCompressor
from attention_apps.applications.summarizer_config import SummarizerConfig, SummaryOptions
from attention_apps.applications.summary import Summary, SummaryLine
from attention_apps.applications.summary_graph import FEWEST_WORDS, SummaryGraph
from attention_apps.applications.summary_signatures import summary_signatures
from attention_apps.applications.summary_writer import SummaryWriter
from attention_apps.preprocessing.sentences import count_words, sentence_starts
from attention_apps.preprocessing.text import JOINER, normalise
from attention_apps.preprocessing.vocabulary import UNKNOWN
from attention_apps.training.datasets import Batches

_WAYS = {"generate": SummaryWriter, "delete": SentenceCompressor}


class TextSummarizer(Application):
    """Says a text in one line, and shows which words it read for each word it wrote.

    A text longer than `max_source_length` tokens is cut into passages at the ends of sentences, and the first is
    summarized. With `sentences=N` among the options, N passages are, a line for each, in their order: the first, and
    those whose encoding is most like that of the whole text. Where words are deleted, every sentence is a passage, and
    without `sentences` all are shortened. `Summary.passages` says what was read. A text of fewer than four words is its
    own summary, and a blank one has none.

    Example:
        summarizer = TextSummarizer.from_preset("pointer_generator_headlines")
        summary = summarizer.summarize(text)
        summary.text, summary.attention.shape   # ("Queen spotted at ...", (words, source tokens))

    Reference:
        See et al. 2017, "Get To The Point"; Filippova et al. 2015, "Sentence Compression by Deletion with LSTMs".
    """

    task = "text_summarization"
    config_class = SummarizerConfig
    columns = ("document", "summary")
    default_preset = "pointer_generator_headlines"

    @classmethod
    def from_keras_hub(cls, model: Any, config: SummarizerConfig | None = None) -> Self:
        """The summarizer of a pretrained model of KerasHub, with our search, training and alignments.

        It reads and writes the pieces of words of the model's own tokenizer, and copies none.

        Args:
            model: a `Seq2SeqLM` with its preprocessor (BART, T5, T5Gemma), or the name or folder of its preset.
            config: of it, `decoding`, `training`, `max_source_length` and `decoder.max_length`, the longest that can be
                written, are used.
        """
        from attention_apps.applications.keras_hub_summarizer import make_keras_hub_summarizer

        return make_keras_hub_summarizer(model, config)

    def summarize(self, texts: Any, options: SummaryOptions | None = None) -> Any:
        """Summarizes one text, or each of a list: strings, or bytes of UTF-8.

        What is no text raises an error; in a list it gets a summary with its `error` and no text.

        Returns:
            A `Summary`, or a list of them in the order of the texts.
        """
        if isinstance(texts, list | tuple):
            return list(self.summaries(texts, options))
        (summary,) = self.summaries([texts], options)
        if summary.error is not None:
            raise TypeError(summary.error)
        return summary

    def summaries(self, texts: Iterable[Any], options: SummaryOptions | None = None) -> Iterable[Summary]:
        """As `summarize`, one after the other: for more texts than fit into memory."""
        return self._results(texts, options)

    def _serve(self, texts: tf.Tensor, options: SummaryOptions | None = None) -> dict[str, tf.Tensor]:
        """Answers strings `(batch,)` in graph code; see `SummaryGraph`."""
        self._check_trained()
        return SummaryGraph(self, options)(texts)

    def _batch_results(self, batch, options):
        options = self.config.decoding if options is None else options
        texts = [item if isinstance(item, str | bytes) else "" for item in batch]
        tokens = self._way.tokenize(texts)
        rows = [[token.decode() for token in row] for row in tokens.to_list()]
        words, starts = count_words(tokens).numpy(), sentence_starts(tokens).to_list()
        spans = [
            # Where there is too little to say it shorter, nothing is read.
            self._passages(row, sentence_spans(begins), options.sentences) if count >= FEWEST_WORDS else []
            for row, begins, count in zip(rows, starts, words, strict=True)
        ]
        passages = [(row, span) for row, chosen in zip(rows, spans, strict=True) for span in chosen]
        lines = iter(self._lines(passages, options))
        separator = " " if self.config.method == "delete" and options.sentences is None else "\n"
        return [
            _summary(item, text.decode(), row, [next(lines) for _ in chosen], separator)
            for item, text, row, chosen in zip(batch, normalise(texts).numpy(), rows, spans, strict=True)
        ]

    def _passages(self, tokens, sentences, count):
        """What is read of a text, as many passages as are asked for."""
        longest = self.config.max_source_length
        if self.config.method == "delete":
            passages = cut_into_passages(sentences, longest, len(tokens))
        else:
            count = count or 1
            passages = cut_into_passages(sentences, longest, count)
        if count is None or len(passages) <= count:
            return passages
        if count == 1:
            return passages[:1]
        features = self._features([(tokens, span) for span in passages])
        return [passages[place] for place in choose_passages(features, count)]

    def _features(self, passages):
        """The mean of the encoder's states for each passage."""
        means = []
        for first in range(0, len(passages), BATCH_SIZE):
            memory = self._encode(self._way.source(_padded(passages[first : first + BATCH_SIZE])))
            real = tf.cast(memory["mask"], tf.float32)[..., tf.newaxis]
            means.append((tf.reduce_sum(memory["values"] * real, 1) / tf.reduce_sum(real, 1)).numpy())
        return np.concatenate(means)

    def _encode(self, source):
        return self._graph("encode", self.model.encode)(source)

    def _lines(self, passages, options):
        for first in range(0, len(passages), BATCH_SIZE):
            yield from self._batch_lines(passages[first : first + BATCH_SIZE], options)

    def _batch_lines(self, passages, options):
        tokens = _padded(passages)
        source = self._way.source(tokens)
        result = self._search(source, options)
        best = result.token_ids[:, 0, : tf.maximum(tf.reduce_max(result.lengths), 1)]
        weights = self._attention(source, best).numpy()
        words, copied = (part[:, 0].numpy() for part in self._way.words(result.token_ids, source, tokens))
        texts, scores = self._way.texts(result.token_ids, source, tokens).numpy(), result.scores.numpy()
        first = self._way.first_position
        for row, (_, (start, end)) in enumerate(passages):
            written = np.nonzero(words[row] != b"")[0]
            alternatives = [(text.decode(), float(score)) for text, score in zip(texts[row], scores[row], strict=True)]
            yield SummaryLine(
                score=alternatives[0][1],
                tokens=[_plain(word.decode()) for word in words[row][written]],
                alternatives=alternatives,
                attention=weights[row][written, first : first + end - start],
                copied=copied[row][written].tolist(),
                passage=(start, end),
            )

    # What `Application` asks for

    @property
    def _way(self):
        """How the configured method reads, writes and learns, with the vocabulary of now."""
        way = self.__dict__.get("_way_of_vocabulary")
        if way is None or way.vocabulary is not self.vocabulary:
            way = self._way_of_vocabulary = _WAYS[self.config.method](self.config, self.vocabulary)
        return way

    def _make_model(self):
        return self._way.make_model()

    def _data_check(self):
        return _WAYS[self.config.method].data_check(self.config)

    def _make_vocabulary(self, rows):
        return self._corpus(rows, keep=True).make_vocabulary(self.config.vocabulary_size, self.config.min_count)

    def _new_words(self, rows):
        found = self._corpus(rows, keep=True).make_vocabulary(self.config.vocabulary_size, self.config.min_new_count)
        known = self._way.folded
        return [word for word, form in zip(found.tokens, self._way.forms(found), strict=True) if form not in known]

    def _unknown_rates(self, rows):
        corpus = self._corpus(rows, keep=True)
        unknown = corpus.word_ids(self._way.folded) == UNKNOWN
        columns = {"document": corpus.documents, "summary": corpus.summaries}
        return {name: float(unknown[column.codes].mean()) for name, column in columns.items() if column.codes.size}

    def _corpus(self, rows, keep=False):
        """The tokens of rows, remembered from the making of the vocabulary to that of the examples."""
        remembered = self.__dict__.setdefault("_corpora", {})
        _, corpus = remembered.pop(id(rows), (rows, None))
        corpus = _WAYS[self.config.method].make_corpus(rows) if corpus is None else corpus
        if keep:
            remembered[id(rows)] = rows, corpus  # with the rows, whose id is theirs as long as they live
        return corpus

    def _examples(self, rows, cache, quiet, training):
        return self._way.examples(rows, self._corpus(rows))

    def _batches(self, examples, training_config, training):
        return Batches(
            examples,
            examples.signature,
            batch_size=training_config.batch_size,
            lengths=examples.lengths,
            seed=training_config.seed,
            shuffle=training,
            short_first_epochs=training_config.short_first_epochs,
        )

    def _reward_metric(self):
        return self._way.reward_metric

    def _sampled_texts(self, token_ids, examples, rows):
        ids, tokens = tf.ragged.constant(token_ids, tf.int32, ragged_rank=1).to_tensor(), examples.source_tokens(rows)
        texts = self._way.texts(ids[:, tf.newaxis], self._way.source(tokens), tokens)
        return [text.decode() for text in texts.numpy()[:, 0]]

    def _search_options(self, options):
        return self._way.options(super()._search_options(options))

    def _attend(self, source, token_ids):
        weights = super()._attend(source, token_ids)
        if weights is None:  # a decoder without attention looks nowhere
            weights = tf.zeros(tf.concat([tf.shape(token_ids), tf.shape(source["token_ids"])[1:]], axis=0))
        return weights

    def _scorers(self, memory, options):
        return self._way.scorers(memory, options)

    def _signatures(self, options):
        return summary_signatures(self, options)

    def _example_texts(self, result, source, examples, rows, options):
        texts = self._way.texts(result.token_ids, source, examples.source_tokens(rows)).numpy()
        return [[text.decode() for text in row] for row in texts]

    def _metrics(self, texts, references, sources):
        return self._way.metrics(texts, references, sources)


def _padded(passages):
    """Tokens of passages, `(batch, source)`, padded with empty strings."""
    tokens = [tokens[start:end] for tokens, (start, end) in passages]
    return tf.ragged.constant(tokens, tf.string, ragged_rank=1).to_tensor("")


def _plain(token):
    return token.replace(JOINER, "")


def _summary(item, text, tokens, lines, separator):
    plain = [_plain(token) for token in tokens]
    if not isinstance(item, str | bytes):
        return Summary.failed(item, f"A text must be a string or bytes. Received: {type(item).__name__}")
    if not lines:
        return Summary.verbatim(text, plain, item)
    return Summary(lines, plain, separator, source=item)
