import pytest

from attention_apps import TextTranslator, load
from tests.applications.translators import CONFIGS, PIECES, TEXT, make_pairs, make_translator, write_tsv


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    data = write_tsv(folder / "train.tsv", make_pairs())
    translator = make_translator()
    translator.fit(data, data, output=folder / "run", quiet=True)
    return translator, folder


@pytest.fixture(scope="module")
def translator(trained):
    return trained[0]


def test_it_learns_its_task(trained):
    translator, folder = trained
    metrics = translator.evaluate(folder / "train.tsv", quiet=True).metrics
    assert list(metrics) == ["sacre_bleu", "chrf"]
    assert metrics["sacre_bleu"].score > 60


def test_evaluate_scores_what_translate_writes(translator, tmp_path):
    pairs = [(TEXT, "Anna mag den Baum."), ("12:30", "12:30")]
    texts = translator.evaluate(write_tsv(tmp_path / "data.tsv", pairs), quiet=True).texts
    assert texts == [one.text for one in translator.translate([source for source, _ in pairs])]


@pytest.mark.parametrize("attention", ["additive", "luong"])
def test_a_recurrent_translator_learns_too(trained, attention):
    _, folder = trained
    changes = [f"decoder.attention.kind={attention}", "training.epochs=12", "training.validate_every=6"]
    translator = make_translator(CONFIGS["recurrent"], [*changes, "decoding.beam_size=1"])
    (history,) = translator.fit(folder / "train.tsv", folder / "train.tsv", quiet=True)
    first, last = history.validations
    assert last["chrf"] > first["chrf"]
    assert translator.translate(TEXT).attention.shape[1] == 10


def test_a_translator_without_attention_looks_nowhere():
    translator = make_translator(CONFIGS["recurrent"], ["decoder.attention.kind=none"], PIECES)
    assert not translator.translate(TEXT).attention.any()


def test_a_saved_translator_translates_the_same(trained):
    translator, folder = trained
    translator.save(folder / "model")
    loaded = load(folder / "model")
    assert isinstance(loaded, TextTranslator)
    first, second = translator.translate(TEXT), loaded.translate(TEXT)
    assert first.text == second.text
    assert first.score == pytest.approx(second.score, abs=1e-4)


def test_a_translation_says_how_it_came_about(translator):
    translation = translator.translate(TEXT, num_best=2)
    assert len(translation.lines) == 2
    assert [score for _, score in translation.alternatives] == sorted(
        (score for _, score in translation.alternatives), reverse=True
    )
    assert 0 < translation.confidence <= 1
    assert translation.source_tokens == ["Anna", "likes", "the", "tree", ".", "Bob", "sees", "the", "house", "."]
    assert translation.attention.shape == (len(translation.tokens), 10)


def test_a_list_is_answered_in_its_order(translator):
    texts = [TEXT, "", "Bob sees the dog.", "42", "日本語 text"]
    translations = translator.translate(texts)
    assert [translation.source for translation in translations] == texts
    assert [translation.text for translation in translations] == [translator.translate(text).text for text in texts]
    assert translations[1].text == ""


def test_a_long_text_is_translated_sentence_by_sentence(translator):
    one = translator.translate("Bob sees the dog.").text
    assert translator.translate("Bob sees the dog. " * 9).text == " ".join([one] * 9)
    assert translator.translate("Bob sees the dog.\n" * 9).text == "\n".join([one] * 9)


def test_what_is_not_a_text_is_an_error(translator):
    with pytest.raises(TypeError, match="must be a string or bytes. Received: int"):
        translator.translate(5)
    first, second = translator.translate([5, TEXT])
    assert (first.text, first.error) == ("", "A text must be a string or bytes. Received: int")
    assert second.error is None


def test_fine_tuning_keeps_the_vocabulary(trained, tmp_path):
    translator, _ = trained
    tuned = translator.with_config(make_translator(overrides=["training.epochs=1"]).config)
    tuned.fit(write_tsv(tmp_path / "new.tsv", [("Zoë likes the cat.", "Zoë mag das Katze.")]), quiet=True)
    assert tuned.vocabulary == translator.vocabulary
