"""Compares what an export answers with the transcripts of the recognizer."""

import numpy as np


def check_like_live(outputs, transcripts, recognizer):
    """Compares arrays with transcripts of one piece each, times to the millisecond."""
    for row, transcript in enumerate(transcripts):
        (part,) = transcript.parts
        is_sure = part.confidence >= recognizer.config.decoding.min_confidence
        assert outputs["status"][row] == (b"ok" if is_sure else b"unclear")
        assert [text.decode() for text in outputs["text"][row]] == [text for text, _ in part.alternatives]
        scores = [score for _, score in part.alternatives]
        np.testing.assert_allclose(outputs["score"][row], scores, rtol=1e-3, atol=1e-3)
        count, width = len(part.tokens), part.attention.shape[1]
        assert [token.decode() for token in outputs["tokens"][row, :count]] == part.tokens
        assert not any(outputs["tokens"][row, count:])
        assert outputs["token_ids"][row, :count].tolist() == recognizer.vocabulary.encode(part.tokens)
        np.testing.assert_allclose(outputs["attention"][row, :count, :width], part.attention, atol=1e-3)
        assert not outputs["attention"][row, count:].any()
        assert not outputs["attention"][row, :, width:].any()
        _check_words({name: outputs[name][row] for name in ("words", "start", "end", "word_confidence")}, part.words)


def _check_words(outputs, words):
    count = len(words)
    assert [word.decode() for word in outputs["words"][:count]] == [word.word for word in words]
    assert not any(outputs["words"][count:])
    np.testing.assert_allclose(outputs["start"][:count], [word.start for word in words], atol=1e-6)
    np.testing.assert_allclose(outputs["end"][:count], [word.end for word in words], atol=1e-6)
    np.testing.assert_allclose(outputs["word_confidence"][:count], [word.confidence for word in words], atol=1e-3)
