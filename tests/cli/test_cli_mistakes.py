"""A user's mistake: one sentence on stderr that names the cure, exit code 2, and nothing written anywhere."""

from pathlib import Path

import pytest

from fedcohort.core.method import METHODS
from support.cli_calls import EXPERIMENT, Cli, contents

FILES = {
    "bad.toml": "rounds = = 3",
    "fedlecc.toml": EXPERIMENT.replace("fedprox", "fedlecc"),
    "strings.toml": EXPERIMENT.replace('[[method]]\nname = "fedprox"', "").replace(
        "cohort = 3", 'cohort = 3\nmethod = ["fedavg"]'
    ),
    "plain_file": "",
    "empty.csv": "",
    "header.csv": "client,a,b\n",
    "one_client.csv": "client,a,b\nx,1,2\n",
    "negative.csv": "client,a,b\nx,1,-2\ny,3,4\n",
    "fraction.csv": "client,a,b\nx,1,2\ny,0.5,4\n",
    "word.csv": "client,a,b\nx,1,2\ny,many,4\n",
    "twice.csv": "client,a,b\nx,1,2\nx,3,4\n",
    "one_class.csv": "client,a\nx,1\ny,2\n",
    "counts.csv": "client,a,b\nx,1,2\ny,3,4\n",
    "long.csv": "hospital,outcome\nx,1\ny,0\nx,0\n",
    "nan.csv": "age,dose,outcome\n1,2,0\n3,NaN,1\n5,6,0\n7,8,1\n",
    "same.csv": "age,outcome\n1,0\n3,0\n5,0\n",
    "patients.csv": "age,hospital,outcome\n" + "".join(f"{i},h{i % 2},{i % 3 % 2}\n" for i in range(40)),
    "broken_module.py": "def network(:\n",
    "failing_module.py": "x = 1 / 0\n",
    "networks.py": (
        "from torch import nn\n"
        "def narrow(shape, classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n"
        "def wrong(shape, classes):\n    return nn.Linear(99, classes)\n"
        "def settled(shape, classes, width):\n    return nn.Linear(4, classes)\n"
        "def nothing():\n    nn.Linear(4, 3)\n"
        "def lazy(classes):\n    return nn.LazyLinear(classes)\n"
        "class Pair(nn.Linear):\n    def forward(self, x):\n        return super().forward(x), x\n"
        "def pair(classes):\n    return Pair(4, classes)\n"
        "class Late(nn.Linear):\n    def forward(self, x):\n"
        "        return super().forward(x) if x.sum() == 0 else x @ self.weight\n"
        "def late(classes):\n    return Late(4, classes)\n"
    ),
    "needy.py": "import nowhere_at_all\n",
    "careless.py": (
        "from dataclasses import dataclass\n"
        "from fedcohort.api import Objective, register\n"
        "@register\n@dataclass(frozen=True)\n"
        'class Careless(Objective):\n    """Fails."""\n\n'
        "    def anchor(self, view):\n        return undefined\n"
    ),
    "taken.py": "precious = True\n",
}


def table(**options: str) -> str:
    """--set data=... for a table of this directory."""
    return "data={source='table', " + ", ".join(f"{key}='{value}'" for key, value in options.items()) + "}"


def method(text: str) -> str:
    return f"method=[{text}]"


# What is set on top of a good experiment, and words the answer must hold.
SETTINGS = {
    "unknown key": (["roundz=3"], "roundz: unknown, did you mean 'rounds'?"),
    "unknown key of a section": (["local.stepz=3"], "local.stepz: unknown, did you mean 'steps'?"),
    "wrong type": (["local.lr='x'"], "local.lr: 'x' is not a number"),
    "wrong choice": (["local.optimiser='sdg'"], "local.optimiser: 'sdg' is not 'sgd' or 'adam'"),
    "section that is a number": (["local=3"], "local: 3 is not a table"),
    "out of range": (["method.fedprox.mu=-1"], "method.fedprox.mu: -1 must be at least 0"),
    "share above one": (["faults.dropout=2"], "faults.dropout: 2 must be between 0 and 1"),
    "target above one": (["evaluate.target=50"], "evaluate.target"),
    "no rounds": (["rounds=0"], "rounds: 0 must be between 1 and 1,000,000,000"),
    "infinite rate": (["local.lr=inf"], "local.lr: inf must be finite"),
    "half a round": (["rounds=2.5"], "rounds: 2.5 is not a whole number"),
    "no cohort": (["cohort=0"], "cohort: 0"),
    "too large a share": (["cohort=1.5"], "cohort: 1.5"),
    "negative cohort": (["cohort=-3"], "cohort: -3"),
    "cohort of words": (["cohort='all'"], "cohort: 'all' is not a number"),
    "no seeds": (["seeds=[]"], "seeds: the list is empty"),
    "unknown method": (["method.0.name='fedprx'"], "unknown method 'fedprx', did you mean 'fedprox'?"),
    "impossible pair": ([method("'scaffold+fedavgm'")], "scaffold and fedavgm cannot be combined"),
    "unreadable method": ([method("'fedprox('")], "cannot read"),
    "two positional settings": ([method("'fedprox(1, 2)'")], "cannot read"),
    "unknown hyper-parameter": ([method("{name='fedprox', muu=1}")], "method.fedprox.muu: unknown"),
    "method without a name": ([method("{mu=1}")], "method.0.name: missing"),
    "method that is a number": ([method("3")], "method.0"),
    "empty method list": (["method=[]"], "the list is empty"),
    "empty list of parts": ([method("{parts=[]}")], "method.0.parts"),
    "part without a name": ([method("{parts=[{mu=1}]}")], "each part is a table with a name"),
    "parts that are no list": ([method("{parts='fedprox'}")], "method.0.parts"),
    "settings beside parts": ([method("{parts=['fedprox'], mu=1}")], "method.0.parts"),
    "combination as a part": ([method("{parts=['fedprox+fedavgm']}")], "'fedprox+fedavgm' is several parts"),
    "part with a number for a name": ([method("{parts=[{name=3}]}")], "method.0.parts.0.name: 3 is not text"),
    "settings beside a combination": ([method("{name='fedlecc+fedprox', mu=1}")], "go in its name"),
    "method listed twice": ([method("'fedavg', 'fedprox', 'fedavg'")], "fedavg is listed twice"),
    "unknown partition": (["partition.name='dirichlt'"], "unknown partition 'dirichlt', did you mean"),
    "partition without a name": (["partition={clients=3}"], "partition.name: missing"),
    "hopeless Dirichlet": (["partition.alpha=0.001", "partition.max_tries=3"], "no Dirichlet draw"),
    "too small for Dirichlet": (["partition.min_size=100"], "lower 'clients' or 'min_size'"),
    "more clients than samples": (["partition={name='iid', clients=121}"], "121 clients cannot share 120"),
    "no client column": (["partition={name='natural'}"], "'natural' needs data that name each row's client"),
    "no official test set": (["split.mode='mirror'"], "'mirror' needs an official test set"),
    "unknown source": (["data={source='syntetic'}"], "did you mean 'synthetic'?"),
    "unknown source option": (["data.sample=3"], "data.sample: unknown, did you mean 'samples'?"),
    "source that is a number": (["data={source=3}"], "data.source: 3 is not text"),
    "no data folder": (["data.root='nowhere'"], "there is no data folder nowhere"),
    "data folder that is a number": (["data.root=3"], "data.root: 3 is not text"),
    "no data file": ([table(path="nowhere.csv", label="y")], "there is no file nowhere.csv"),
    "empty data file": ([table(path="empty.csv", label="y")], "empty.csv is empty"),
    "separator of two": (
        [table(path="nan.csv", label="y", separator=";;")],
        "check the file and 'separator'",
    ),
    "missing values": ([table(path="nan.csv", label="outcome")], "column 'dose' is empty in 1 of 4 rows"),
    "wrong label column": ([table(path="nan.csv", label="outcom")], "did you mean 'outcome'?"),
    "wrong client column": (
        [table(path="patients.csv", label="outcome", client="hospitol"), "partition={name='natural'}"],
        "did you mean 'hospital'?",
    ),
    "one label": ([table(path="same.csv", label="outcome")], "all labels are equal"),
    "model that is a number": (["model={name=3}"], "model.name: 3 is not text"),
    "partition that is a number": (["partition={name=3}"], "partition.name: 3 is not text"),
    "unknown model": (["model='mpl'"], "unknown model 'mpl', did you mean 'mlp'?"),
    "unknown model setting": (["model={name='mlp', width=[3]}"], "did you mean 'widths'?"),
    "model for images only": (["model='lenet5'", "data={source='digits'}"], "lenet5 takes images of 28x28"),
    "model of no module": (["model='nowhere_at_all:network'"], "model: cannot import 'nowhere_at_all'"),
    "model of a broken module": (["model='broken_module:network'"], "'broken_module' fails with SyntaxError"),
    "model without a function": (["model='networks:deep'"], "there is no function 'networks:deep'"),
    "model with too few outputs": (["model='networks:narrow'"], "answers two examples with shape (2, 2)"),
    "model for other data": (["model='networks:wrong'"], "fails on examples of shape (4,) with RuntimeError"),
    "model without its setting": (["model='networks:settled'"], "TypeError"),
    "model that is nothing": (["model='networks:nothing'"], "returns None, but a torch.nn.Module is needed"),
    "model of unknown size": (["model='networks:lazy'"], "the size of weight is not known yet"),
    "model of two answers": (["model='networks:pair'"], "answers two examples with a tuple"),
    "model of a needy module": (["model='needy:network'"], "install what it needs"),
    "import of nothing": (["imports=['nowhere_at_all']"], "imports: cannot import 'nowhere_at_all'"),
    "failing import": (["imports=['failing_module']"], "'failing_module' fails with ZeroDivisionError"),
    "withheld counts": ([method("'fedlecc'"), "privacy.counts='withheld'"], "fedlecc needs label counts"),
    "no validation data": ([method("'cafa'"), "split.validation=0"], "cafa needs validation data"),
    "--set without a value": (["rounds"], "write it like --set local.lr=0.1"),
    "--set without a key": (["=3"], "write it like --set local.lr=0.1"),
    "--set below a value": (["rounds.x=1"], "'rounds' is a single value"),
    "--set beyond a list": (["method.7.mu=1"], "'7' is no name here and no position from 0 to 0"),
    "--set of another method": (["method.scaffold.mu=1"], "'scaffold' is no name here"),
}


def first(numbers: int) -> str:
    """So many of them, from 1, as an option lists them."""
    return ",".join(map(str, range(1, numbers + 1)))


COMMANDS = {
    "no experiment": ("run", "name an experiment file"),
    "missing experiment": ("run nowhere.toml --out out", "there is no experiment file nowhere.toml"),
    "invalid TOML": ("run bad.toml --out out", "bad.toml is not valid TOML"),
    "directory as experiment": ("run . --out out", "continue runs with --resume"),
    "not text": ("run noise.toml --out out", "cannot read noise.toml"),
    "--set below a word": ("run strings.toml --set method.0.mu=1", "'0' is a single value"),
    "seeds of words": ("run e.toml --seeds a,b", "--seeds a,b: write whole numbers with commas"),
    "no seeds at all": ("run e.toml --seeds ,", "write whole numbers with commas"),
    "a seed twice": ("run e.toml --seeds 0,1,0", "seeds: 0 is listed twice"),
    "very many runs": (
        f"run e.toml --sweep rounds={first(1000)} --sweep local.steps={first(1000)}",
        "these settings make up to 1,000,000 runs: shorten the lists, or add --yes",
    ),
    "too many runs": (
        f"run e.toml --seeds {first(1001)} --sweep rounds={first(1000)}",  # --yes would be no cure
        "these are 1,001,000 runs, and a comparison has at most 1,000,000: ask for fewer",
    ),
    "more than a million combinations": (
        f"run e.toml --yes --sweep rounds={first(1001)} --sweep local.steps={first(1000)}",
        "sweep: its values have more than 1,000,000 combinations: give fewer values",
    ),
    "output is a file": ("run e.toml --out plain_file", "cannot write results to plain_file"),
    "output below a file": ("run e.toml --out plain_file/x", "cannot write results to plain_file/x"),
    "resume of nothing": ("run --resume nowhere", "nowhere is not the directory of a run"),
    "resume of another directory": ("run --resume .", "it holds neither experiment.toml nor config.toml"),
    "resume with an experiment": ("run e.toml --resume .", "is not the directory of a run"),
    "resume with changes": ("run --resume . --set rounds=9", "is not the directory of a run"),
    "unknown command": ("rum", "run"),
    "unknown option": ("run e.toml --seed 1", "--seeds"),
    "option of words": ("diagnose counts.csv --seed x", "'x' is not a valid integer"),
    "nothing to diagnose": ("diagnose", "Missing argument"),
    "one client": ("diagnose one_client.csv", "one client"),
    "negative count": ("diagnose negative.csv", "-2 is negative"),
    "fractional count": ("diagnose fraction.csv", "0.5 is not a whole number"),
    "count of words": ("diagnose word.csv", "'many' is not a number"),
    "client twice": ("diagnose twice.csv", "client 'x' is in rows 1 and 2"),
    "one class": ("diagnose one_class.csv", "one_class.csv has 1 class"),
    "empty table": ("diagnose empty.csv", "empty.csv is empty"),
    "table without rows": ("diagnose header.csv", "no rows"),
    "missing table": ("diagnose nowhere.csv", "there is no file nowhere.csv"),
    "not a table": ("diagnose networks.py", "networks.py"),
    "wrong client column": ("diagnose counts.csv --client clients", "did you mean 'client'?"),
    "wrong label column": ("diagnose long.csv --client hospital --label outcom", "did you mean 'outcome'?"),
    "long without clients": ("diagnose long.csv --label outcome", "--client"),
    "one column for both": ("diagnose long.csv --label outcome --client outcome", "name two columns"),
    "experiment to diagnose": ("diagnose nowhere.toml", "there is no experiment file nowhere.toml"),
    "unknown source": ("diagnose digitz --partition iid", "did you mean 'digits'?"),
    "source without a protocol": ("diagnose digits", "say how to deal it by --partition"),
    "protocol for a table": ("diagnose counts.csv --partition iid", "leave --partition out"),
    "unknown protocol": ("diagnose digits --partition idd", "did you mean 'iid'?"),
    "unreadable protocol": ("diagnose digits --partition iid(", "cannot read"),
    "protocol out of range": ("diagnose digits --partition dirichlet(alpha=0)", "0 must be above 0"),
    "two protocols": ("diagnose digits --partition iid+iid", "one --partition"),
    "unknown method": ("methods fedprx", "did you mean 'fedprox'?"),
    "unknown role": ("new method mine --role selektor", "did you mean 'selector'?"),
    "name with a dash": ("new method my-method", "my-method"),
    "keyword as name": ("new method lambda", "lambda"),
    "name in use": ("new method fedavg", "fedavg"),
    "name of a module": ("new method torch", "there is a module called 'torch'"),
    "file in use": ("new method taken", "taken.py"),
    "directory that is a file": ("new method mine --dir plain_file", "plain_file"),
}


@pytest.fixture
def files(here: Path) -> Path:
    for name, text in FILES.items():
        (here / name).write_text(text)
    (here / "noise.toml").write_bytes(b"\xff\xfe\x00")
    return here


@pytest.mark.parametrize("case", SETTINGS)
def test_mistake_in_a_setting(case: str, cli: Cli, files: Path) -> None:
    changes, words = SETTINGS[case]
    refused(cli, files, ["run", "e.toml", "--out", "out", *(w for c in changes for w in ("--set", c))], words)


@pytest.mark.parametrize("case", COMMANDS)
def test_mistake_in_a_command(case: str, cli: Cli, files: Path) -> None:
    command, words = COMMANDS[case]
    refused(cli, files, command.split(), words)


def refused(cli: Cli, directory: Path, command: list[str], words: str) -> None:
    before = contents(directory)
    answer = cli(*command)
    assert words in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    assert answer.out == ""
    assert answer.code == 2
    assert contents(directory) == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model='networks:late'"], "networks.py, line 19, in forward: RuntimeError: mat1 and mat2"),
        (["imports=['careless']", method("'careless'")], "careless.py, line 9, in anchor: NameError"),
    ],
)
def test_own_code_that_fails_in_training(changes: list[str], words: str, cli: Cli, files: Path) -> None:
    answer = cli("run", "e.toml", "--quiet", *(word for change in changes for word in ("--set", change)))
    METHODS._classes.pop("careless", None)  # other tests have no such method
    assert answer.err.startswith(f"error: {words}")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert answer.code == 2


def test_training_that_diverges_is_told(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", "--quiet", "--set", "local.lr=1e18", "--set", "local.weight_decay=1e18")
    assert answer.code == 0
    assert answer.out.startswith("fedprox diverged, its loss is no number any more: try a tenth of local.lr")
    assert "diverged" not in cli("run", "e.toml", "--quiet").out


def test_without_test_samples_accuracy_is_no_number(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", "--quiet", "--set", "split.test=0")
    assert answer.code == 0
    assert "nan" not in answer.out
