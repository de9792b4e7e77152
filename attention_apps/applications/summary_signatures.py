"""How the export of a summarizer is called."""

from typing import Any

import tensorflow as tf

from attention_apps.applications.summarizer_config import SummaryOptions
from attention_apps.applications.summary_graph import STATUSES, SummaryGraph
from attention_apps.serving.signature import DEFAULT_SIGNATURE, Signature

# A longer text is not read: where words are deleted, every one of its sentences would be searched at once.
MAX_TEXT_BYTES = 1 << 17
TOO_LONG = "text too long"
_EXAMPLE = "Yesterday in the morning, somebody saw something in the old town. It was reported by the police."
_INPUT_NOTES = {"text": f"texts of at most {MAX_TEXT_BYTES:,} bytes of UTF-8; what is none is read as U+FFFD"}
_OUTPUT_NOTES = {
    "text": "summaries, best first",
    "score": "what the summaries are ranked by; more is better",
    "token_ids": "the best summary's tokens by their numbers, the end token 2 after them, then 0",
    "tokens": "the best summary's tokens, then empty strings",
    "attention": "for each of these tokens, how much each token of the source was read",
    "source_tokens": "what was read, then empty strings",
    "kept": "whether each of these is in the best summary",
    "status": ", ".join(f"`{status}`" for status in (*STATUSES, TOO_LONG)),
}


def summary_signatures(summarizer: Any, options: SummaryOptions) -> dict[str, Signature]:
    """The signature of a trained `TextSummarizer`: strings in, strings out."""
    graph = SummaryGraph(summarizer, options)

    def answer(text: tf.Tensor) -> dict[str, tf.Tensor]:
        is_too_long = tf.strings.length(text) > MAX_TEXT_BYTES
        outputs = graph(tf.where(is_too_long, "", text))
        outputs["status"] = tf.where(is_too_long, TOO_LONG, outputs["status"])
        ranked = {"text": outputs.pop("alternatives"), "score": outputs.pop("alternative_scores")}
        return outputs | ranked

    signature = Signature(
        answer,
        {"text": tf.TensorSpec([None], tf.string)},
        {"text": [_EXAMPLE]},
        _INPUT_NOTES,
        _OUTPUT_NOTES,
        resources=(summarizer._way.folded.table,),
    )
    return {DEFAULT_SIGNATURE: signature}
