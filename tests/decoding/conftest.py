import keras
import pytest


@pytest.fixture
def eager():
    """For tests that count calls of a Python step: elsewhere the loop is traced, and its steps are not seen."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("counts the steps of an eager loop")
