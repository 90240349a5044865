"""What an installed fednb reads and writes: the user's notebooks, the user's results, nothing in its own folder."""

import os
import shutil

import pytest

from fednb.base.files import Contents
from fednb.cli import lab
from fednb.cli.commands import main
from fednb.study import execution, notebooks, paper
from fednb.study.claims import outcome_class
from fednb.study.measured import read_measured
from fednb.study.paper import NoShelf, papers, shelf
from fednb.study.verify import best

NOTEBOOK = "fedfft/01_fig1_perturbation_spectra"
TABLE = "fig1_variance_by_band.csv"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def installed(store, tmp_path, monkeypatch):
    """Papers that lie inside the package."""
    package = tmp_path / "site-packages" / "fednb"
    shutil.copytree(shelf("papers") / "fedfft", package / "_papers" / "fedfft")
    monkeypatch.setattr(paper, "PACKAGE", package)
    return package


def made_page(folder, text="x"):
    folder.mkdir(parents=True)
    (folder / TABLE).write_text(text)
    return folder


def test_results_are_kept_with_the_paper_in_a_checkout(store):
    expected = shelf("papers") / "fedfft/results/01_fig1_perturbation_spectra_paper"
    assert notebooks.kept_folder(NOTEBOOK, "paper") == expected


def test_results_are_kept_in_the_store_where_fednb_was_installed(installed, store, tmp_path):
    """The package is as it was, and what was kept is read where before there was what came with the paper."""
    before = sorted(installed.rglob("*"))
    came = papers("fedfft").kept_folder(NOTEBOOK, "laptop")
    assert came == installed / "_papers/fedfft/results/01_fig1_perturbation_spectra_laptop" and came.is_dir()
    kept = notebooks.keep_results(NOTEBOOK, "laptop", made_page(tmp_path / "page"), "command")
    assert kept == store / "results/fedfft/01_fig1_perturbation_spectra_laptop"
    assert papers("fedfft").kept_folder(NOTEBOOK, "laptop") == kept != came
    assert papers("fedfft").page("fig1", scale="laptop").kept_folder == kept
    assert sorted(installed.rglob("*")) == before


def test_a_variable_names_the_folder_of_results(store, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_RESULTS", str(tmp_path / "mine"))
    kept = notebooks.keep_results(NOTEBOOK, "laptop", made_page(tmp_path / "page"), "command")
    assert (
        kept
        == tmp_path / "mine/fedfft/01_fig1_perturbation_spectra_laptop"
        == papers("fedfft").kept_folder(NOTEBOOK, "laptop")
    )


def test_claims_are_shown_with_the_users_own_verdicts(store, tmp_path, monkeypatch):
    """Of the section that was kept; the others have what came with the paper."""
    one = papers("fedfft")
    came = {name: best(one, name) for name in ("fig1", "table10")}
    table = read_measured(one.kept_folder(NOTEBOOK, "laptop") / TABLE)
    monkeypatch.setenv("FEDNB_RESULTS", str(tmp_path / "mine"))
    page = made_page(tmp_path / "page", table.assign(value=1 / table["value"]).to_csv())
    (page / "verdict.csv").write_text("claim,verdict\nfig1-lowest-band,holds\n")
    kept = notebooks.keep_results(NOTEBOOK, "laptop", page, "command")
    assert not (kept / "verdict.csv").exists()  # nobody keeps a verdict, and nobody reads one
    verdicts = [found["best_verdict"].iloc[0] for found in (came["fig1"], best(one, "fig1"))]
    assert [outcome_class(verdict) for verdict in verdicts] == ["seen", "not-seen"]
    assert best(one, "table10").equals(came["table10"])


def test_a_kill_in_between_leaves_the_users_own_results(store, tmp_path, monkeypatch):
    """The old copy lies under another name when the process dies; it is put back, not passed over."""
    monkeypatch.setenv("FEDNB_RESULTS", str(tmp_path / "mine"))
    kept = notebooks.keep_results(NOTEBOOK, "laptop", made_page(tmp_path / "page"), "command")
    kept.rename(kept.with_name(f".{kept.name}.1-{'0' * 8}.old"))
    assert papers("fedfft").kept_folder(NOTEBOOK, "laptop") == kept and (kept / TABLE).exists()


def test_damage_in_the_users_own_results_is_found(installed, store, tmp_path):
    kept = notebooks.keep_results(NOTEBOOK, "laptop", made_page(tmp_path / "page"), "command")
    assert execution.check_pages() == [] and Contents.of(kept).listed
    (kept / TABLE).write_text("y")
    (problem,) = execution.check_pages()
    assert problem.startswith(f"{kept / TABLE}: ") and problem.endswith("; `command` makes it again")


def test_other_shelves(tmp_path, monkeypatch):
    shutil.copytree(shelf("papers") / "fedscam", tmp_path / "papers" / "mine")
    monkeypatch.setenv("FEDNB_PAPERS", str(tmp_path / "papers"))
    assert list(papers().index) == ["mine"] and papers("mine").own_results == tmp_path / "papers/mine/results"
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path / "nowhere"))
    with pytest.raises(NoShelf, match=r"FEDNB_NOTEBOOKS = .*nowhere.*: there is no such folder"):
        notebooks.names()


# fednb lab


def test_notebooks_are_copied_and_never_written_over(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main(["lab", "--no-open", "--to", str(folder)]) == 0
    every = notebooks.names()
    assert capsys.readouterr().out == f"{len(every)} notebooks copied to {folder}\n"
    assert all((folder / f"{n}.ipynb").read_bytes() == notebooks.path(n).read_bytes() for n in every)
    (folder / f"{NOTEBOOK}.ipynb").write_text("mine")
    (folder / "00_start_here.ipynb").unlink()
    assert lab.copy_notebooks(folder) == (1, [NOTEBOOK])
    assert (folder / f"{NOTEBOOK}.ipynb").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path):
    (tmp_path / "00_start_here.ipynb").symlink_to(tmp_path / "nowhere")
    with pytest.raises(lab.NoFolder, match=r"00_start_here\.ipynb: cannot be copied \(No such file"):
        lab.copy_notebooks(tmp_path)
    assert (tmp_path / "00_start_here.ipynb").is_symlink()


def test_a_file_is_no_folder_for_notebooks(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["lab", "--no-open", "--to", str(tmp_path / "file")]) == 2
    assert "cannot be copied" in capsys.readouterr().err and (tmp_path / "file").read_text() == "mine"


def test_lab_becomes_a_server_for_this_machine_only(tmp_path, monkeypatch):
    """Folders that variables name stay the same for kernels, which have another current folder."""
    seen = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDNB_STORE", "store")
    monkeypatch.delenv("FEDNB_DATA", raising=False)
    monkeypatch.setattr(os, "execve", lambda path, command, variables: seen.update(command=command, of=variables))
    main(["lab", "--", "--no-browser", "--port=9000"])
    assert "--ServerApp.ip=127.0.0.1" in seen["command"] and "--LabApp.news_url=None" in seen["command"]
    assert f"--ServerApp.root_dir={tmp_path / 'fednb-notebooks'}" in seen["command"]
    assert seen["command"][-2:] == ["--no-browser", "--port=9000"]
    assert seen["of"]["FEDNB_STORE"] == str(tmp_path / "store") and "FEDNB_DATA" not in seen["of"]


@pytest.mark.parametrize("asked, module", [(["lab"], "jupyterlab"), (["notebook", "fedfft/01"], "papermill")])
def test_who_has_no_jupyter_is_told_what_to_install(asked, module, tmp_path, store, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "find_spec", lambda name: None)
    assert main(asked) == 2
    assert f"{module} is not installed; install it with: pip install 'fednb[notebooks]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_path_to_a_copy_is_that_notebook_unless_it_was_changed(tmp_path, monkeypatch):
    copy = tmp_path / "fedfft" / "01_fig1_perturbation_spectra.ipynb"
    copy.parent.mkdir()
    copy.write_bytes(notebooks.path(NOTEBOOK).read_bytes())
    assert notebooks.find(str(copy)) == NOTEBOOK
    copy.write_text("mine")
    with pytest.raises(notebooks.OtherNotebook, match=f"`FEDNB_NOTEBOOKS={tmp_path} fednb notebook {NOTEBOOK}` exec"):
        notebooks.find(str(copy))
    monkeypatch.setenv("FEDNB_NOTEBOOKS", str(tmp_path))
    assert notebooks.find(str(copy)) == NOTEBOOK and notebooks.path(NOTEBOOK) == copy


# fednb verify --section


@pytest.mark.parametrize(
    "asked, said",
    [
        (["fedfft", "--section", "table99"], "no section of fedfft 'table99'; closest: table"),
        (["--all", "--section", "fig1"], "--section belongs to one paper"),
    ],
)
def test_wrong_sections_are_refused(asked, said, store, capsys):
    assert main(["verify", *asked]) == 2
    assert said in capsys.readouterr().err


def test_one_section_is_judged(store, capsys):
    """At paper scale nothing is run here: the tables that were kept are judged."""
    assert main(["verify", "specgradfilter", "--section", "fig1", "--scale", "paper", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "fig1-" in out and "fig2-" not in out and "table1-" not in out
