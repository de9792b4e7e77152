import pytest

from attention_apps.serving.versions import newest_version, next_version, versions


def make(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "saved_model.pb").touch()


def test_versions_are_numbers(tmp_path):
    make(tmp_path, "2", "10", "1")
    assert versions(tmp_path) == [1, 2, 10]
    assert next_version(tmp_path) == 11
    assert newest_version(tmp_path) == tmp_path / "10"


def test_a_new_or_empty_folder_begins_with_one(tmp_path):
    assert next_version(tmp_path) == next_version(tmp_path / "new") == 1


def test_a_version_without_a_model_is_passed_over(tmp_path):
    make(tmp_path, "1")
    (tmp_path / "2").mkdir()
    assert newest_version(tmp_path) == tmp_path / "1"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match="`folder` must be new, empty, or hold exported versions"):
        next_version(tmp_path)
    with pytest.raises(ValueError, match="must be new, empty"):
        next_version(tmp_path / "thesis.txt")
    with pytest.raises(ValueError, match="holds no exported model"):
        newest_version(tmp_path)
