from types import SimpleNamespace

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


class Drawing:
    def __init__(self, text):
        self.text = text

    def plot(self, path):
        with open(path, "w") as file:
            file.write(self.text)


def test_links_in_the_folder_are_replaced_and_not_followed(tmp_path):
    folder, secret = tmp_path / "plots", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("mine")
    (folder / "photo_attention.png").symlink_to(secret)
    (folder / "other_attention.png").symlink_to(tmp_path)
    files = OutputFiles(str(folder), ".png", ["photo.jpg", "other.jpg"])
    for name in ("photo.jpg", "other.jpg"):
        files.write(SimpleNamespace(source=name, result=Drawing("new")))
    assert secret.read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["other_attention.png", "photo_attention.png"]
    assert all(path.read_text() == "new" and not path.is_symlink() for path in folder.iterdir())


def test_a_folder_in_the_place_of_a_picture_is_named(tmp_path):
    (tmp_path / "photo_attention.png").mkdir()
    files = OutputFiles(str(tmp_path), ".png", ["photo.jpg"])
    with pytest.raises(ValueError, match=r"photo_attention\.png is a folder"):
        files.write(SimpleNamespace(source="photo.jpg", result=Drawing("new")))


def test_a_picture_that_fails_leaves_nothing_behind(tmp_path):
    files = OutputFiles(str(tmp_path), ".png", ["photo.jpg"])
    with pytest.raises(TypeError):
        files.write(SimpleNamespace(source="photo.jpg", result=Drawing(None)))
    assert list(tmp_path.iterdir()) == []
