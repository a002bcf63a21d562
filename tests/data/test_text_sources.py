"""Texts as rows of token ids: tables of one's own, Sentiment140, Shakespeare."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from fedcohort.data import Dataset, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.data.sources.shakespeare import read_speeches
from fedcohort.data.texts import encode_texts, learn_vocabulary, words_of
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import run
from fedcohort.util.errors import UserError

CSV = """note,ward,ill
"No pain, no pain at all",north,0
"Chest pain",north,1
"He can't breathe",south,1
,south,0
"""
OFFICIAL = """"0","1","Mon","NO_QUERY","ann","@bob so sad"
"4","2","Mon","NO_QUERY","bob","so glad"
"4","3","Mon","NO_QUERY","ann","glad, glad day"
"""


@pytest.fixture
def notes(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "notes.csv"
    path.write_text(CSV)
    return path


def test_words_are_lower_case_and_without_punctuation() -> None:
    assert words_of("He can’t -- CAN'T! 'stop' #2day") == ["he", "can't", "can't", "stop", "2day"]
    assert words_of("naïve snake_case 50%") == ["naïve", "snake", "case", "50"]


def test_vocabulary_is_the_commonest_words_then_the_alphabet() -> None:
    """pain occurs three times, no twice, the others once; 0 and 1 are no words."""
    texts = ["No pain, no pain at all", "chest pain"]
    assert learn_vocabulary(texts, 100) == {"pain": 2, "no": 3, "all": 4, "at": 5, "chest": 6}
    assert learn_vocabulary(texts, 4) == {"pain": 2, "no": 3}
    with pytest.raises(UserError, match="hold no words"):
        learn_vocabulary(["", "?!"], 100)


def test_rows_hold_the_last_words_behind_padding() -> None:
    known = {"pain": 2, "no": 3}
    rows = encode_texts(["no pain", "chest", "", "no no no pain"], known, 3)
    assert rows.tolist() == [[0, 3, 2], [0, 0, 1], [0, 0, 0], [3, 3, 2]]
    assert rows.dtype == torch.int64


def test_a_table_of_texts(notes: Path) -> None:
    data = load("text", path=str(notes), text="note", label="ill", client="ward", words=4, length=3)
    assert data.x.tolist() == [[0, 0, 0], [2, 1, 1], [0, 1, 2], [1, 1, 1]]  # in the order of the texts
    assert (data.vocabulary, data.classes, data.y.tolist()) == (4, ("0", "1"), [0, 0, 1, 1])
    federation = federate(data, partitioner("natural"))
    assert (federation.clients, federation.vocabulary) == (("north", "south"), 4)


def test_test_texts_use_the_training_vocabulary(notes: Path) -> None:
    later = notes.with_name("later.csv")
    later.write_text("note,ward,ill\npain again,north,1\n")
    options = {"text": "note", "label": "ill", "length": 2}
    data = load("text", path=str(notes), test_path=str(later), **options)
    assert data.test_x is not None
    assert data.test_x.tolist() == [[2, 1]]
    assert torch.equal(data.x, load("text", path=str(notes), **options).x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "notes", "label": "ill"}, r"no column 'notes' \('text'\), did you mean 'note'\?"),
        ({"text": "note", "label": "il"}, "did you mean 'ill'"),
        ({"text": "note", "label": "ill", "client": "wards"}, "did you mean 'ward'"),
        ({"text": "note", "label": "note"}, "label 'note' is empty in 1 row"),
        ({"text": "note", "label": "ill", "words": 2}, "words: 2 must be at least 3"),
    ],
)
def test_mistakes_in_options(notes: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load("text", path=str(notes), **options)


def test_token_ids_are_checked() -> None:
    y = torch.tensor([0, 1])
    with pytest.raises(UserError, match="run from 1 to 9 but there are 5 kinds"):
        Dataset(torch.tensor([[1], [9]]), y, ("a", "b"), vocabulary=5)
    with pytest.raises(UserError, match="must be int64 token ids"):
        Dataset(torch.zeros(2, 1), y, ("a", "b"), vocabulary=5)


def test_sent140_as_published(tmp_path: Path, cache: Path) -> None:
    """Six columns without header; users are clients, neutral test tweets (2) are nobody's."""
    folder = tmp_path / "sent140"
    folder.mkdir()
    (folder / "training.1600000.processed.noemoticon.csv").write_text(OFFICIAL)
    test = OFFICIAL.replace('"4","2"', '"2","2"')
    (folder / "testdata.manual.2009.06.14.csv").write_bytes(test.replace("glad,", "\xe9,").encode("latin-1"))
    data = load("sent140", root=tmp_path, length=4)
    assert data.classes == ("negative", "positive")
    assert data.y.tolist() == [0, 1, 1]
    assert data.owner is not None
    assert data.owner.tolist() == ["ann", "bob", "ann"]
    assert data.x.tolist() == [[0, 4, 3, 6], [0, 0, 3, 2], [0, 2, 2, 5]]  # glad, so, bob, day, sad
    assert data.test_y is not None
    assert data.test_y.tolist() == [0, 1]


def test_sent140_as_a_table(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "sent140_100k.csv.gz").write_bytes(gzip.compress(b'label,text\n0,"so, sad"\n4,so glad\n'))
    data = load("sent140", path=str(tmp_path), length=2)
    assert data.x.tolist() == [[2, 4], [2, 3]]
    assert (data.owner, data.test_x) == (None, None)
    (tmp_path / "sent140_100k.csv.gz").write_bytes(gzip.compress(b"a,b,c\n"))
    with pytest.raises(UserError, match="neither the official file nor a table"):
        load("sent140", path=str(tmp_path))
    with pytest.raises(UserError, match=r"training.* is missing: put it into a folder sent140"):
        load("sent140")


def test_shakespeare(tmp_path: Path, cache: Path) -> None:
    """``ab`` and ``cab`` make "ab\\ncab": its windows of two start at 0, 2 and 4."""
    speeches = [("A", "X", "ab"), ("A", "Y", "b"), ("A", "X", "cab"), ("B", "X", "bac")]
    lines = [json.dumps(dict(zip(("play", "role", "text"), one, strict=True))) for one in speeches]
    (tmp_path / "speeches.jsonl").write_text("\n".join(lines))
    data = load("shakespeare", path=str(tmp_path), length=2, every=2)
    assert data.classes == ("end of line", "a", "b", "c")
    assert data.x.tolist() == [[1, 2], [0, 3], [2, 1]]
    assert data.y.tolist() == [0, 1, 3]
    assert data.owner is not None
    assert data.owner.tolist() == ["A: X", "A: X", "B: X"]  # Y says too little
    assert len(load("shakespeare", path=str(tmp_path), length=2, every=1)) == 5
    with pytest.raises(UserError, match="says more than 9 characters: lower 'length'"):
        load("shakespeare", path=str(tmp_path), length=9)
    (tmp_path / "speeches.jsonl").write_text("To be\n")
    with pytest.raises(UserError, match="is not a list of speeches"):
        load("shakespeare", path=str(tmp_path))


def test_an_experiment_learns_from_words(tmp_path: Path, cache: Path) -> None:
    """One word of eight says the label; a network with an embedding finds it, from the experiment file on."""
    draw = torch.Generator().manual_seed(0)
    rows = ["note,ill"]
    for label in torch.randint(0, 2, (300,), generator=draw).tolist():
        noise = [f"w{number}" for number in torch.randint(0, 20, (7,), generator=draw).tolist()]
        rows.append(f"{' '.join([*noise[:4], ('well', 'ill')[label], *noise[4:]])},{label}")
    path = tmp_path / "notes.csv"
    path.write_text("\n".join(rows))
    experiment = Experiment.of(
        {
            "method": "fedavg",
            "data": {"source": "text", "path": str(path), "text": "note", "label": "ill", "length": 8},
            "partition": {"name": "iid", "clients": 5},
            "model": {"name": "embedding_dense", "dimension": 8},
            "local": {"lr": 0.01, "optimiser": "adam", "epochs": 2, "batch": 16},
            "cohort": 5,
        }
    )
    result = run(experiment.methods[0], experiment.task(0), rounds=10)
    assert result.metrics["global.accuracy"] > 0.9


# Real files -------------------------------------------------------------------------------------------------


def test_real_sent140(real_data: Path) -> None:
    """50,000 tweets of each kind; 177 negative and 182 positive ones to be tested on, as published."""
    if not (real_data / "sent140").is_dir():
        pytest.skip("Sentiment140 is not here")
    data = load("sent140", root=real_data)
    assert data.test_y is not None
    assert data.test_y.bincount().tolist() == [177, 182]
    assert (data.x == 1).float().mean() < 0.1  # the vocabulary covers nine words of ten


def test_real_shakespeare(real_data: Path) -> None:
    """1,374 roles say 4.23 million characters; speeches are joined by an end of line."""
    path = real_data / "shakespeare" / "speeches.jsonl.gz"
    if not path.is_file():
        pytest.skip("Shakespeare is not here")
    said = read_speeches(path)
    assert len(said) == 1374
    assert sum(len(text.replace("\n", "")) for text in said.values()) == pytest.approx(4.23e6, rel=0.002)
    data = load("shakespeare", root=real_data)
    federation = federate(data, partitioner("natural", min_samples=10))
    assert federation.vocabulary == federation.num_classes
    assert federation.num_clients == sum((len(text) - 81) // 80 + 1 >= 10 for text in said.values())


def test_real_amazon_reviews(real_data: Path) -> None:
    """1,000 positive and 1,000 negative reviews in each of four domains."""
    path = real_data / "amazon_multidomain" / "reviews.csv.gz"
    if not path.is_file():
        pytest.skip("the Amazon reviews are not here")
    data = load("text", path=str(path), text="text", label="label", client="domain")
    federation = federate(data, partitioner("natural"))
    assert federation.clients == ("books", "dvd", "electronics", "kitchen")
    assert (federation.counts + federation.test.counts(2)).tolist() == [[1000, 1000]] * 4
