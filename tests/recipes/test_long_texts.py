from tests.recipes.loading import load

long_texts = load("long_texts", "text_summarization")


def test_documents_are_made_of_consecutive_paragraphs():
    rows = [{"document": f"Text\n{number}.", "summary": f"Line {number}"} for number in range(5)]
    documents, references = long_texts.make_documents(rows, 2)
    assert documents == ["Text 0.\n\nText 1.", "Text 2.\n\nText 3."]
    assert references == ["Line 0\nLine 1", "Line 2\nLine 3"]


def test_a_document_is_split_into_sentences():
    assert long_texts.split_sentences("A title\n\nOne, two. Three (four)!") == ["A title", "One, two.", "Three (four)!"]


def test_the_table_has_a_row_for_each_summarizer(capsys):
    long_texts.compare(["a b c"], ["a b d"], {"same": lambda some: some, "none": lambda some: ["x"]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| same | 66.7 | 50.0 | 66.7 | 3 |", "| none | 0.0 | 0.0 | 0.0 | 1 |"]
