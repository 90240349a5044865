"""What users write is read within bounds, or refused in one line that names the file, the field and what it must be."""

import numpy as np
import pytest

from fednb.algorithms.catalogue import method
from fednb.algorithms.parts import AdaptiveWeights, FlexibleRadius, Sam
from fednb.algorithms.sums import BadTerm
from fednb.base.inputs import BadFile, one_line, read_rows, read_toml, shown
from fednb.cli.commands import main, parsed
from fednb.core.rounds import BadParameter
from fednb.data.partition import parse
from fednb.data.split import PartitionFailed
from fednb.engines.setting import BadSetting, Setting
from fednb.study.paper import Paper

MANY = list(range(1, 401))


def test_a_value_is_shown_on_one_short_line():
    for value in ("a\nb\x1b[0m", "x" * 10**6, 10**5000, [[]] * 1000, np.zeros(10**5), {"a": {"b": {}}}):
        assert len(shown(value)) <= 160 and shown(value).isprintable()
        assert len(one_line(shown(value) * 99)) <= 500


@pytest.mark.parametrize(
    "data, said",
    [
        (b"a = [1,", r"made\.toml: Unclosed array|Invalid value"),
        (b"a = 1\na = 2", "Cannot overwrite a value"),
        (b"\xff\xfe", "not a text in UTF-8: invalid start byte at byte 0"),
        (b"a = " + b"[" * 5000, "line 1: nested too deeply"),
        (b"a" + b".a" * 5000 + b" = 1", "line 1: nested too deeply"),
        (b"#" * (5 << 20), "more than 4194304 bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path, data, said):
    (tmp_path / "made.toml").write_bytes(data)
    with pytest.raises(BadFile, match=said):
        read_toml(tmp_path / "made.toml")
    with pytest.raises(BadFile, match=r"other\.toml: No such file"):
        read_toml(tmp_path / "other.toml")


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "no column 'a'"),
        ("a,a,b\n", "two columns are called 'a'"),
        ("a,b\n1\n", "line 2 has 1 cells, the first line 2"),
    ],
)
def test_a_table_with_a_torn_line_is_named(tmp_path, text, said):
    (tmp_path / "made.csv").write_text(text)
    with pytest.raises(BadFile, match=said):
        read_rows(tmp_path / "made.csv", ("a", "b"))


@pytest.mark.parametrize(
    "text, said",
    [
        ("fedavg) + sam", "more brackets are closed than opened"),
        ("fedavg + sam(", "a bracket is not closed"),
        ("fedavg" + " + dyn" * 60, "has 61 terms; a method has at most 50"),
        ("fedavg + " + "+" * 10_000, "has 10009 letters; a method is written in at most 2000"),
        ("fedavg + " + "highpass(" * 30, "over 20 brackets are open"),
    ],
)
def test_a_text_that_is_no_method_is_refused_in_a_line(text, said):
    with pytest.raises(BadTerm, match=said) as refused:
        method(text)
    assert len(str(refused.value)) <= 500 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "made, said",
    [
        (
            lambda: AdaptiveWeights(learning_steps=1e300),
            "learning_steps = 1e+300: must be a whole number from 1 to",
        ),
        (lambda: AdaptiveWeights(learning_steps=float("inf")), "learning_steps = inf: must be a whole number from 1"),
        (
            lambda: FlexibleRadius(top=10**9),
            "FlexibleRadius.top = 1000000000: must be a whole number of at",
        ),
        (lambda: Sam(rho=float("nan")), "Sam.rho = nan: must be at least 0"),
        (lambda: Sam(rho="0.1"), "Sam.rho = '0.1': must be at least 0"),
    ],
)
def test_a_part_refuses_numbers_without_end(made, said):
    with pytest.raises(BadParameter) as refused:
        made()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "given, said",
    [
        (dict(batch=3_000_000_000), "batch = 3000000000: must be at most 1000000"),
        (dict(epochs=10**6), "epochs = 1000000: must be at most 1000"),
        (dict(rounds=10**7), "rounds = 10000000: must be at most 1000000"),
        (dict(sampling="coin", participation=1e-9), "participation times clients must be at least 0.01"),
    ],
)
def test_a_setting_has_an_end(given, said):
    with pytest.raises(BadSetting) as refused:
        Setting(**given)
    assert said in str(refused.value)


def test_a_split_that_cannot_be_is_given_up():
    with pytest.raises(ValueError, match=r"alpha=1e-300; allowed is a number from 1e-06 to 1e\+06"):
        parse("dirichlet(1e-300)")
    with pytest.raises(PartitionFailed, match=r"had 0 at best in \d+ draws"):
        parse("dirichlet(alpha=0.01, minimum=1)").split(np.arange(300) % 5, 300, 0)


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "fedavg) + sam"],
        ["run", "--batch", "3000000000"],
        ["run", "fedawa", "-p", "learning_steps", "1e300"],
        ["run", "--partition", "(" * 9999],
        ["run", "--seed", "1.5"],
        ["run", "--workers", "9" * 5000],
        ["grid", "status", "fedfft", "fig1", "--seeds", "0,-1"],
        ["ls", "x" * 9999],
    ],
)
def test_a_command_complains_in_one_line(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path))
    try:
        status = main(argv)
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2 and said.startswith("fednb: ") and said.count("\n") == 1 and len(said) <= 600


@pytest.mark.parametrize("text", ["[" * 5000, "{[]: 1}", "-" * 9000 + "1", "9" * 9000, "\\0"])
def test_a_typed_value_that_python_cannot_read_is_a_text(text):
    assert parsed(text) == text


@pytest.mark.parametrize(
    "text, said",
    [
        ("methods = 3", "`methods` must be a list of names"),
        ("methods = [{ label = 'x' }]", "`methods` must be a list of names, or of tables with a name"),
        ("methods = ['fedavg']\nvary = 3", "`vary` must be a table of lists"),
        ("methods = ['fedavg']\nseeds = [-1]", "`seeds` must be a list of whole numbers of at least 0"),
        ("methods = ['fedavg']\nsetting = 3", "setting = 3, must be a table"),
        ("methods = ['fedavg']\nsmoke = 3", "smoke: must be a table, not 3"),
        ("methods = ['fedavgg']", "no method 'fedavgg'; closest: FedAvg"),
        ("methods = ['fedavg']\n[setting]\nlr = nan", "lr = nan: must be above 0"),
        ("methods = ['fedavg']\nprobe = { wat = 1 }", "`probe` must be a table of what, rounds, batches"),
        (
            f"methods = ['fedsam']\n[sweep]\nrho = {list(range(400))}\n[vary]\nclients = {list(range(1, 400))}",
            "runs; a grid has",
        ),
    ],
)
def test_a_grid_file_that_is_wrong_is_named(tmp_path, text, said):
    (tmp_path / "grids").mkdir()
    (tmp_path / "grids" / "made.toml").write_text(text)
    (tmp_path / "paper.toml").write_text('title = "Made"')
    with pytest.raises(BadFile) as refused:
        Paper(tmp_path).grid("made", "smoke")
    assert said in str(refused.value) and "grids/made.toml: " in str(refused.value)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "`title` is not there; it must be a text"),
        ("title = 3", "title = 3, must be a text"),
        ("title = 'x'\ntitel = 'y'", "unknown entry 'titel'; closest: title"),
        ("title = 'x'\nsections = 3", "sections = 3, must be a table of tables"),
        ("title = 'x'\n[sections.a]\ntitle = 'y'", "section a: `notebook` is not there"),
        ("title = 'x'\n[sections.a]\ntitle = 'y'\nnotebook = '../../x'", "notebook = '../../x', must be folder/name"),
    ],
)
def test_a_paper_file_that_is_wrong_is_named(tmp_path, text, said):
    (tmp_path / "paper.toml").write_text(text)
    with pytest.raises(BadFile) as refused:
        Paper(tmp_path).about  # noqa: B018
    assert said in str(refused.value) and "paper.toml: " in str(refused.value)
