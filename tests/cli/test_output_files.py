import pytest

from attention_apps.cli.output_files import OutputFiles


def names(folder, inputs, ending=".png"):
    files = OutputFiles(str(folder), ending, inputs)
    return [files.path_of(name).name for name in inputs]


def test_no_two_inputs_get_the_same_file(tmp_path):
    inputs = ["a/photo.jpg", "b/photo.jpg", "PHOTO.png", "photo_attention.x", "photo.jpg"]
    found = names(tmp_path, inputs)
    assert found[:2] == ["photo_attention.png", "photo_attention_2.png"]
    assert len({name.casefold() for name in found}) == len(inputs)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("-", "stdin"),
        ("../../etc/passwd", "passwd"),
        ("..", "input"),
        ("/", "input"),
        ("", "input"),
        ("a b:c*?.jpg", "a_b_c"),
        ("日本.jpg", "input"),
        ("\udcff\n.jpg", "input"),
        (".hidden", "hidden"),
        ("x" * 300 + ".jpg", "x" * 80),
    ],
)
def test_names_are_made_plain(tmp_path, name, stem):
    files = OutputFiles(str(tmp_path), ".html", [name])
    assert files.path_of(name) == tmp_path / f"{stem}_attention.html"


def test_an_input_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert names(tmp_path, ["photo.jpg", "photo_attention.png"]) == [
        "photo_attention_2.png",
        "photo_attention_attention.png",
    ]
