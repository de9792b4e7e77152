import sys

from tests.recipes.loading import load

not_news = load("not_news")


def test_every_kind_has_texts_of_several_words_on_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["not_news.py", str(tmp_path)])
    not_news.main()
    kinds = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in tmp_path.iterdir()}
    assert kinds == not_news.all_kinds()
    assert set(kinds) == {"reviews", "emails", "abstracts", "tables", "code", "languages"}
    for texts in kinds.values():
        assert len(set(texts)) >= 10
        assert all(len(text.split()) >= 4 for text in texts)
