"""A captioner's export says what the captioner says, without this package, and outside of Python."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from attention_apps.applications.image_captioner import CaptionerConfig, ImageCaptioner, ImageEncoderConfig
from attention_apps.decoding import DecodingOptions
from attention_apps.models.decoder_config import AttentionConfig, DecoderConfig
from attention_apps.preprocessing.image_graph import decode_in_graph
from attention_apps.preprocessing.vocabulary import Vocabulary
from attention_apps.serving import Client, LoadedModel
from tests.serving.fake_model import running
from tests.serving.fresh_process import call_in_fresh_process
from tests.serving.photos import BAD, GOOD

pytestmark = pytest.mark.slow

WORDS = ["a", "dog", "cat", "runs", "on", "grass", "'s", "héllo"]
MIXED = [GOOD["jpeg"], BAD["truncated"][0], GOOD["gif"], BAD["text"][0], GOOD["bmp"], BAD["empty"][0], GOOD["grey png"]]


def tell_apart(model):
    """Makes what an untrained model sees differ from photo to photo, and what it says with it."""
    encoder = model.encoder
    seen = encoder.projection(encoder.extract(decode_in_graph(list(GOOD.values()), 64)[0]))
    encoder.projection.kernel.assign(encoder.projection.kernel * 3 / float(np.std(seen, axis=0).mean()))
    for weight in model.decoder.trainable_weights:
        weight.assign(3.0 * weight)


@pytest.fixture(scope="module")
def captioner():
    keras.utils.set_random_seed(3)
    config = CaptionerConfig(
        encoder=ImageEncoderConfig("efficientnet_lite0", image_size=64, units=10),
        decoder=DecoderConfig(
            embedding_dim=8, units=12, attention=AttentionConfig(units=6), context_gate="scalar", deep_output=True
        ),
        decoding=DecodingOptions(beam_size=3, num_best=2, max_length=7, min_length=3, length_penalty=0.7),
    )
    captioner = ImageCaptioner(config, Vocabulary(WORDS))
    tell_apart(captioner.model)
    return captioner


@pytest.fixture(scope="module")
def folder(captioner, tmp_path_factory):
    return captioner.export(tmp_path_factory.mktemp("export") / "captioner")


@pytest.fixture(scope="module")
def model(folder):
    return LoadedModel(folder)


def check_like_live(captioner, outputs, images):
    """Compares the outputs with the live captions; returns how many different ones there are."""
    live = captioner.caption(images)
    for row, caption in enumerate(live):
        count = len(caption.tokens)
        texts, tokens = ([item.decode() for item in outputs[name][row]] for name in ("text", "tokens"))
        assert outputs["status"][row] == b"ok"
        assert texts == [text for text, _ in caption.alternatives]
        assert tokens[:count] == caption.tokens
        assert not any(tokens[count:])
        ids = captioner.vocabulary.encode(caption.tokens)
        assert outputs["token_ids"][row, :count].tolist() == ids
        np.testing.assert_allclose(outputs["score"][row], [score for _, score in caption.alternatives], rtol=1e-4)
        np.testing.assert_allclose(outputs["attention"][row, :count], caption.attention, atol=1e-4)
        assert not outputs["attention"][row, count:].any()
    return len({caption.text for caption in live})


def test_it_answers_as_the_captioner_where_this_package_cannot_be_imported(captioner, folder, tmp_path):
    images = list(GOOD.values())
    calls = [("serving_default", {"image_bytes": batch}) for batch in (images, images[:1], MIXED)]
    together, alone, mixed = call_in_fresh_process(folder, calls, tmp_path)
    assert check_like_live(captioner, together, images) > 1
    check_like_live(captioner, alone, images[:1])
    good = [row for row, image in enumerate(MIXED) if image in images]
    check_like_live(captioner, {name: array[good] for name, array in mixed.items()}, [MIXED[row] for row in good])


def test_a_bad_image_gets_its_status_and_nothing_else(model):
    for contents, status in BAD.values():
        outputs = model.predict({"image_bytes": [GOOD["png"], contents]})
        assert outputs["status"].tolist() == [b"ok", status.encode()]
        assert outputs["text"][0, 0]
        assert not any(outputs["text"][1])
        assert not outputs["token_ids"][1].any()
        assert not outputs["attention"][1].any()
        assert (outputs["score"][1] == tf.float32.min).all()


def test_all_may_be_bad(model):
    outputs = model.predict({"image_bytes": [contents for contents, _ in BAD.values()]})
    assert [status.decode() for status in outputs["status"]] == [status for _, status in BAD.values()]


def test_a_captioner_without_a_model_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match="has no model yet"):
        ImageCaptioner().export(tmp_path / "captioner")
    assert not (tmp_path / "captioner").exists()


def test_weights_are_stored_once(captioner, folder):
    size = sum(path.stat().st_size for path in (folder / "variables").iterdir())
    assert size < 1.2 * 4 * sum(int(np.prod(weight.shape)) for weight in captioner.model.weights)


def test_sixteen_clients_at_once_get_what_the_model_says_to_each_alone(model):
    images = [*GOOD.values(), *(contents for contents, _ in BAD.values())]
    alone = [model.predict({"image_bytes": [image]}) for image in images]
    with running({"captioner": model}) as (url, _), ThreadPoolExecutor(16) as pool:
        asked = [number % len(images) for number in range(64)]
        rows = [[{"image_bytes": images[number]}] for number in asked]
        answers = list(pool.map(lambda row: Client(url).predict("captioner", row), rows))
    for number, (answer,) in zip(asked, answers, strict=True):
        expected = alone[number]
        assert answer["status"] == expected["status"][0].decode()
        assert answer["text"] == [text.decode() for text in expected["text"][0]]
        np.testing.assert_allclose(answer["score"], expected["score"][0], rtol=1e-4)


def test_a_c_program_gets_the_same_texts(captioner, folder, tmp_path):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc")
    root = Path(tf.sysconfig.get_lib())
    libraries = [f"-l:{name}" for name in ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")]
    if not all((root / name.removeprefix("-l:")).exists() for name in libraries):
        pytest.skip("this TensorFlow comes without its C library")
    program = tmp_path / "predict"
    source = Path(__file__).with_name("predict.c")
    paths = [f"-I{tf.sysconfig.get_include()}", f"-L{root}", f"-Wl,-rpath,{root}"]
    built = subprocess.run(
        [compiler, str(source), "-o", str(program), *paths, *libraries], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    for number, image in enumerate(MIXED):
        (tmp_path / f"{number}.image").write_bytes(image)
    files = [str(tmp_path / f"{number}.image") for number in range(len(MIXED))]
    done = subprocess.run([program, folder, *_operations(folder), *files], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    captions = captioner.caption(MIXED)
    texts = [text for one in captions for text, _ in one.alternatives or [("", 0), ("", 0)]]
    assert lines[: len(texts)] == texts
    assert [line == "ok" for line in lines[len(texts) :]] == [one.error is None for one in captions]


def _operations(folder):
    """The operations of the input and of the outputs `text` and `status`, and the latters' numbers."""
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    signature = content.meta_graphs[0].signature_def["serving_default"]
    image = signature.inputs["image_bytes"].name.split(":")[0]
    (text, first), (status, second) = (signature.outputs[name].name.split(":") for name in ("text", "status"))
    assert text == status
    return image, text, first, second
