import numpy as np
import pytest

from attention_apps.applications.recognition.sub_word_examples import SubWordExamples
from attention_apps.constants import END, START
from attention_apps.models.moonshine_encoder import MIN_SAMPLES
from attention_apps.preprocessing.audio import SAMPLE_RATE, read_audio
from tests.applications.recognizers import bound_examples, make_moonshine, wav_bytes, write_corpus

COUNT = 4


@pytest.fixture(scope="module")
def recognizer():
    return make_moonshine()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    manifest = write_corpus(folder, COUNT)
    (folder / "short.wav").write_bytes(wav_bytes(np.full(800, 0.1, np.float32)))
    lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join([lines[0], *(f"{number}.wav\tA ac,\teven" for number in range(COUNT))]) + "\n")
    return manifest


def test_an_example_is_a_waveform_and_its_sub_words(recognizer, manifest, tmp_path):
    examples = bound_examples(recognizer, manifest, tmp_path)
    assert examples[1]["tokens"].tolist() == [START, 9, 3, 4, 7, 8, END]  # A is out of vocabulary
    source = examples.augment(examples[1], np.random.default_rng(0), epoch=0)["source"]
    assert source["lengths"] == len(source["waveform"]) > SAMPLE_RATE // 4
    assert np.abs(source["waveform"]).max() <= 1


def test_a_batch_is_what_the_model_takes(recognizer, manifest, tmp_path):
    examples = bound_examples(recognizer, manifest, tmp_path)
    batch = next(iter(examples.batches(recognizer.config.training).batches(epoch=0)))
    waveform, lengths = batch["source"]["waveform"], batch["source"]["lengths"]
    assert waveform.shape == (COUNT, max(lengths.numpy()))
    logits = recognizer.model({"source": batch["source"], "tokens": batch["tokens"][:, :-1]})
    assert logits.shape == (COUNT, 6, len(recognizer.vocabulary))


def test_a_recording_too_short_for_a_position_is_padded(recognizer, manifest, tmp_path):
    examples = bound_examples(recognizer, manifest, tmp_path)
    waveform = read_audio(manifest.parent / "short.wav")
    source = examples.make_source(waveform, np.random.default_rng(0), epoch=0)
    assert source["lengths"] == len(source["waveform"]) == MIN_SAMPLES


def test_the_vocabulary_does_not_grow(recognizer, manifest, tmp_path):
    examples = bound_examples(recognizer, manifest, tmp_path)
    assert list(examples.new_words(recognizer.codec)) == []
    with pytest.raises(ValueError, match="needs their vocabulary"):
        examples.make_vocabulary()


def test_transcripts_longer_than_the_decoder_can_write_are_left_out(recognizer, manifest, tmp_path):
    path = tmp_path / "long.tsv"
    path.write_text(f"audio\ttranscript\n{manifest.parent}/0.wav\t{'c' * 14}\n{manifest.parent}/1.wav\tab\n")
    report = SubWordExamples.data_check(recognizer.config, recognizer.codec).run({"data": recognizer.manifest(path)})
    assert report.used == {"data": 1}
    assert "tokens, more than 12" in report.problems[0].message
