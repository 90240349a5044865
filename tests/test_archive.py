"""Runs travel: what one store exports another imports with the same numbers, or refuses; nothing is half there."""

import json
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from struct import unpack
from types import SimpleNamespace
from zipfile import ZipFile, ZipInfo

import pytest
import torch
from interrupts import Stop, stop_after

from fednb.algorithms.catalogue import method
from fednb.base import files
from fednb.cli import store as store_command
from fednb.cli.commands import main
from fednb.engines.setting import Setting
from fednb.metrics import cache as once
from fednb.runs import merging
from fednb.runs.archive import LIST, NUMBERS, CannotExport, export_runs
from fednb.runs.experiment import run, run_of
from fednb.runs.history_csv import Extent, as_csv, shortened
from fednb.runs.probes import Probe
from fednb.runs.soundness import files_in
from fednb.runs.store import Entry, NoWeights, entries
from fednb.runs.twice import made_twice

SMALL = Setting(clients=3, participation=1, rounds=2, epochs=1, batch=50, samples=200, partition="dirichlet(alpha=0.5)")
PROBE = Probe(("global",), rounds=(0, 1))
PAPERS = Path(__file__).parent.parent / "papers"


def made(seed, **how):
    return run(SMALL, "SCAFFOLD", seed, engine="loop", device="cpu", probe=PROBE, **({"progress": False} | how))


def wanted(seed):
    return run_of(SMALL, method("SCAFFOLD"), seed, PROBE)


def measured(done, make=None):
    return once.Question(done, "made", 1, {}).answer(make or (lambda: {"value": torch.tensor(3.0)}))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Two finished runs (seeds 0, 1), each with client rows, probes and a measurement; one after a round (seed 2)."""
    folder = tmp_path_factory.mktemp("original")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDNB_STORE", str(folder))
        measured(made(0)), measured(made(1))
        with pytest.raises(Stop):
            made(2, progress=stop_after(1))
    return folder


@dataclass
class Places:
    """Two stores, of which one is in use, and a file to travel between them."""

    patch: pytest.MonkeyPatch
    here: Path
    there: Path
    file: Path

    def use(self, store: Path) -> None:
        self.patch.setenv("FEDNB_STORE", str(store))

    def export(self, *more, name="runs.zip") -> Path:
        """What the store here has, as a file; then the other store is in use."""
        self.use(self.here)
        self.file = self.file.with_name(name)
        assert main(["store", "export", str(self.file), *more]) == 0
        self.use(self.there)
        return self.file

    def take(self, *files) -> int:
        return main(["store", "import", *map(str, files or [self.file])])


@pytest.fixture
def places(original, tmp_path, monkeypatch):
    shutil.copytree(original, tmp_path / "here")
    monkeypatch.setattr(store_command, "check_pages", list)
    found = Places(monkeypatch, tmp_path / "here", tmp_path / "there", tmp_path / "runs.zip")
    found.use(found.here)
    return found


def contents(store):
    """Every run's files and their bytes."""
    runs = [Entry(folder.name, folder) for folder in (store / "runs").glob("*")]
    return {(e.key, name): (e.folder / name).read_bytes() for e in runs for name in files_in(e)}


def sound(capsys, count):
    """Whether every run of the store in use is, and no import left anything."""
    capsys.readouterr()
    assert main(["store", "check"]) == 0, capsys.readouterr().out
    assert f"{count} runs, {count} sound" in capsys.readouterr().out
    assert [p for p in (merging.home() / "transit").glob("*") if p.name != "lock"] == []


def altered(entry, column, value, **about):
    """The run with another value in the last row, under digests that fit it."""
    rows = entry.history()
    rows[-1][column] = value
    data = as_csv(rows)
    (entry.folder / "history.csv").write_bytes(data)
    extent = Extent(len(rows), len(data), files.digest(data)).as_json()
    entry.describe(entry.about() | {"history": extent} | about)


def never(row):
    raise AssertionError("a finished run is made again")


def test_several_files_are_imported_by_one_command(places, capsys):
    """A run that is in both is taken once. Where one of them is no archive, nothing is taken of any."""
    first = places.export("--key", wanted(0).key, name="first.zip")
    both = places.export(name="both.zip")
    (empty := places.file.with_name("empty")).mkdir()
    assert places.take(first, empty) == 2 and "has no runs in it" in capsys.readouterr().err
    assert not contents(places.there)
    assert places.take(first, both) == 0
    assert "2 runs new, 0 completed, 1 known before, 0 refused" in capsys.readouterr().out


def test_numbers_and_measurements_travel_and_weights_stay(places, capsys):
    told = [(wanted(seed).rows, wanted(seed).weights_sha256) for seed in (0, 1)]
    places.export()
    seen = capsys.readouterr()
    assert f"not finished and left out: 1 run, {wanted(2).key}" in seen.err and ": 2 runs, " in seen.out
    assert places.take() == 0 and "2 runs new, 0 completed, 0 known before, 0 refused" in capsys.readouterr().out
    assert [(r.rows, r.weights_sha256) for r in (made(0, progress=never), made(1, progress=never))] == told
    assert measured(wanted(0), make=never)["value"] == 3 and wanted(0).entry.bare
    assert {name.split("/")[0] for _, name in contents(places.there)} == {*NUMBERS, "measured"}
    with pytest.raises(NoWeights, match="weights were left out"):
        wanted(0).w  # noqa: B018
    sound(capsys, 2)


def test_weights_travel_where_asked_and_every_file_with_them(places, capsys):
    places.export("--weights")
    assert places.take() == 0
    before = {(key, name): data for (key, name), data in contents(places.here).items() if key != wanted(2).key}
    assert contents(places.there) == before
    assert made(0, progress=never).w.numel() and wanted(1).all_probed(PROBE)
    sound(capsys, 2)


def test_probes_travel_without_weights(places, capsys):
    places.export("--probes")
    assert places.take() == 0 and wanted(0).entry.bare and len(wanted(0).all_probed(PROBE)) == 2
    sound(capsys, 2)


def test_the_same_contents_give_the_same_bytes(places, capsys):
    first = places.export("--weights").read_bytes()
    assert places.take() == 0
    places.here, places.there = places.there, places.here
    assert places.export("--weights", name="again.zip").read_bytes() == first


def test_the_same_run_twice_is_one_run(places, capsys):
    places.export("--weights")
    assert places.take() == 0
    before = contents(places.there)
    capsys.readouterr()
    assert places.take() == 0 and "0 runs new, 0 completed, 2 known before" in capsys.readouterr().out
    assert contents(places.there) == before
    sound(capsys, 2)


def test_weights_complete_a_bare_run_and_a_bare_run_takes_none_away(places, capsys):
    bare, whole = places.export(name="bare.zip"), places.export("--weights", name="whole.zip")
    assert places.take(bare) == 0 and wanted(0).entry.bare
    (once.Question(wanted(0), "made", 1, {}).file).unlink()
    capsys.readouterr()
    assert places.take(whole) == 0 and "0 runs new, 2 completed, 0 known" in capsys.readouterr().out
    assert wanted(0).w.numel() and measured(wanted(0), make=never)["value"] == 3
    before = contents(places.there)
    assert places.take(bare) == 0 and contents(places.there) == before
    sound(capsys, 2)


def test_fewer_digits_take_less_room_and_are_the_same_run(places, capsys):
    rows = {seed: wanted(seed).rows for seed in (0, 1)}
    whole, short = places.export(name="whole.zip"), places.export("--digits", "4", name="short.zip")
    assert places.take(short) == 0 and "2 runs new" in capsys.readouterr().out
    for seed, full in rows.items():
        found, entry = wanted(seed).rows, wanted(seed).entry
        assert entry.about()["digits"] == 4 and entry.bare and len(found) == len(full)
        assert found == [{name: shortened(x, 4) for name, x in row.items()} for row in full] != full
        assert [row["round"] for row in found] == [row["round"] for row in full]
    before = contents(places.there)
    assert sum(map(len, before.values())) < sum(map(len, contents(places.here).values()))
    assert places.take(whole) == 0 and "2 known before, 0 refused" in capsys.readouterr().out
    assert contents(places.there) == before
    sound(capsys, 2)
    assert main(["store", "export", str(whole.with_name("again.zip")), "--digits", "9"]) == 0  # it has no more than 4
    places.use(places.here)
    assert places.take(whole.with_name("again.zip")) == 0 and "2 known before" in capsys.readouterr().out


def test_numbers_that_differ_in_the_digits_that_are_left_are_refused(places, capsys):
    places.export("--digits", "4")
    places.use(places.here)
    altered(wanted(0).entry, "drift", wanted(0).rows[-1]["drift"] * 1.01)
    altered(wanted(1).entry, "drift", wanted(1).rows[-1]["drift"] * (1 + 1e-9))
    assert places.take() == 1
    seen = capsys.readouterr()
    assert "1 known before, 1 refused" in seen.out
    assert f"run {wanted(0).key}" in seen.err and "drift of round" in seen.err


def test_a_run_with_fewer_digits_gets_no_weights_and_says_what_makes_room(places, capsys):
    short, whole = places.export("--digits", "6", name="short.zip"), places.export("--weights", name="whole.zip")
    assert places.take(short) == 0
    before = contents(places.there)
    assert places.take(whole) == 1
    assert f"with 6 digits of its numbers; `fednb store rm {wanted(0).key}`" in capsys.readouterr().err
    assert contents(places.there) == before


@pytest.mark.parametrize("asked, said", [("0", "from 1 to 17"), ("18", "from 1 to 17"), ("6 --weights", "leave one")])
def test_digits_that_cannot_be_are_one_line(places, capsys, asked, said):
    assert main(["store", "export", str(places.file), "--digits", *asked.split()]) == 2
    assert said in capsys.readouterr().err and not places.file.exists()


def test_other_times_are_the_same_run_and_the_one_that_is_there_stays(places, capsys):
    places.export("--weights")
    assert places.take() == 0
    altered(wanted(0).entry, "seconds", 1234.5, device_name="another machine", ended="2020-01-01T00:00:00Z")
    before = contents(places.there)
    assert places.take() == 0 and contents(places.there) == before


@pytest.mark.parametrize("column, value", [("accuracy", 12.5), ("drift", 0.123), ("train_loss", float("nan"))])
def test_other_numbers_under_one_key_are_refused_and_all_others_imported(places, capsys, column, value):
    places.export("--key", wanted(0).key, name="one.zip")
    assert places.take() == 0
    altered(wanted(0).entry, column, value, device_name="another machine")
    before = contents(places.there)
    places.export()
    capsys.readouterr()
    assert places.take() == 1
    seen = capsys.readouterr()
    assert "1 run new, 0 completed, 0 known before, 1 refused" in seen.out
    (line,) = seen.err.splitlines()
    assert str(wanted(0).entry.folder) in line and str(places.file) in line and "another machine" in line
    assert f"{column} of round 1 is {value} here" in line and f"store rm {wanted(0).key}" in line
    assert {k: v for k, v in contents(places.there).items() if k[0] == wanted(0).key} == before
    sound(capsys, 2)


def test_other_weights_with_the_same_numbers_are_refused(places, capsys):
    places.export()
    assert places.take() == 0
    entry = wanted(0).entry
    entry.describe(entry.about() | {"weights_sha256": "0" * 64})
    assert places.take() == 1 and "weights_sha256 is 0000000000000000 here" in capsys.readouterr().err


def test_a_finished_run_takes_the_place_of_the_same_run_unfinished(places, capsys):
    with pytest.raises(Stop):
        places.use(places.there)
        made(0, progress=stop_after(1))
    places.export("--weights")
    assert places.take() == 0 and wanted(0).status == "finished"
    (aside,) = (places.there / "set-aside").iterdir()
    assert len(Entry(wanted(0).key, aside).history()) == 1
    sound(capsys, 2)


def test_an_unfinished_run_with_other_numbers_is_not_replaced(places, capsys):
    with pytest.raises(Stop):
        places.use(places.there)
        made(0, progress=stop_after(1))
    places.use(places.here)
    rows = wanted(0).rows
    data = as_csv([row | {"accuracy": 1.0} for row in rows])
    (wanted(0).entry.folder / "history.csv").write_bytes(data)
    told = Extent(2, len(data), files.digest(data)).as_json()
    wanted(0).entry.describe(wanted(0).entry.about() | {"history": told})
    places.export()
    assert places.take() == 1 and "accuracy of round 0" in capsys.readouterr().err and wanted(0).status == "running"


def test_a_damaged_run_here_is_named_with_what_repairs_it(places, capsys):
    places.export()
    assert places.take() == 0
    (wanted(0).entry.folder / "history.csv").write_bytes(b"nonsense")
    assert places.take() == 1
    assert f"store check --repair {wanted(0).key}" in capsys.readouterr().err


def test_a_run_at_work_is_refused_and_not_waited_for(places, capsys):
    places.export()
    with wanted(0).entry.lock():
        assert places.take() == 1
    assert f"run {wanted(0).key} is at work in another process" in capsys.readouterr().err
    assert [e.key for e in entries()] == [wanted(1).key]
    assert places.take() == 0 and len(entries()) == 2
    sound(capsys, 2)


def refused(places, capsys, what=""):
    """The file is refused in one line, and nothing of it was written."""
    capsys.readouterr()
    assert places.take() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fednb: {places.file}: ") and what in line, line
    assert not places.there.exists()


def middles(path):
    """By name of a file in an archive: where the middle of its bytes is."""
    data = path.read_bytes()
    with ZipFile(path) as archive:
        infos = archive.infolist()
    beginnings = {
        i.filename: i.header_offset + 30 + sum(unpack("<HH", data[i.header_offset + 26 :][:4])) for i in infos
    }
    return {i.filename: beginnings[i.filename] + i.compress_size // 2 for i in infos}


def test_a_flipped_bit_in_any_file_is_refused(places, capsys):
    data = places.export("--weights", "--key", wanted(0).key).read_bytes()
    at = middles(places.file)
    assert len(at) == 10  # two of numbers, a state, three client rows, two probes, a measurement and the list
    for place in at.values():
        places.file.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        refused(places, capsys)


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(places, capsys):
    """A few fields of a ZIP file, such as its times, are read by nobody."""
    data = places.export("--key", wanted(0).key).read_bytes()
    assert places.take() == 0
    before = contents(places.there)
    for at in range(0, len(data), len(data) // 40):
        shutil.rmtree(places.there, ignore_errors=True)
        places.file.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        if places.take() == 0:
            assert contents(places.there) == before
        else:
            refused(places, capsys)


def test_a_file_that_was_cut_short_is_refused(places, capsys):
    data = places.export().read_bytes()
    for length in (0, 1, 1000, len(data) // 2, len(data) - 1):
        places.file.write_bytes(data[:length])
        refused(places, capsys)
    places.file.unlink()
    refused(places, capsys, "is missing")


def rewritten(path, change, as_link=""):
    """The archive with other files: change maps {name: bytes} to such."""
    with ZipFile(path) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    inside = change(inside)
    with ZipFile(path, "w") as archive:
        for name, data in inside.items():
            info = ZipInfo(name)
            info.external_attr = ((stat.S_IFLNK if name == as_link else stat.S_IFREG) | 0o644) << 16
            archive.writestr(info, data)


def listed(inside, key, name, data):
    """With one more file, which the list knows."""
    about = files.from_json(Path(), inside[LIST])
    about["runs"].setdefault(key, {})[name] = {"bytes": len(data), "sha256": files.digest(data)}
    return inside | {f"runs/{key}/{name}": data, LIST: files.as_json(about)}


@pytest.mark.parametrize(
    "name",
    ["../../../evil", "/evil", "measured/../../evil.safetensors", "a\\..\\evil", "lock", "measured/.x.safetensors"],
)
def test_a_name_that_is_no_file_of_a_run_is_refused(places, capsys, name):
    places.export()
    rewritten(places.file, lambda inside: listed(inside, wanted(0).key, name, b"evil"))
    refused(places, capsys, "is not a file of a run")
    assert not [p for p in places.file.parent.rglob("*") if "evil" in p.name]


@pytest.mark.parametrize("key", ["..", "../" + "0" * 16, "0" * 15, "lock"])
def test_a_key_that_is_none_is_refused(places, capsys, key):
    places.export()
    rewritten(places.file, lambda inside: listed(inside, key, "run.json", b"{}"))
    refused(places, capsys, "is not the key of a run")


def test_links_and_files_that_the_list_does_not_have_are_refused(places, capsys):
    data = places.export().read_bytes()
    name = f"runs/{wanted(0).key}/history.csv"
    rewritten(places.file, lambda inside: inside | {name: b"/etc/passwd"}, as_link=name)
    refused(places, capsys, "is not a plain file")
    places.file.write_bytes(data)
    rewritten(places.file, lambda inside: inside | {"more": b""})
    refused(places, capsys, "'more' is in the archive or in its list, not in both")
    rewritten(places.file, lambda inside: {n: x for n, x in inside.items() if n not in (name, "more")})
    refused(places, capsys, "not in both")
    rewritten(places.file, lambda inside: {"other": b""})
    refused(places, capsys, "is no archive of runs")


def test_a_file_that_is_larger_than_its_list_says_is_refused(places, capsys):
    places.export()
    name = f"runs/{wanted(0).key}/history.csv"
    rewritten(places.file, lambda inside: inside | {name: inside[name] * 1000})
    refused(places, capsys, f"{name} has ")


def test_a_file_of_the_same_size_that_is_not_the_listed_one_is_refused(places, capsys):
    """The ZIP file itself is sound: its own checks say nothing."""
    places.export()
    name = f"runs/{wanted(0).key}/history.csv"
    rewritten(places.file, lambda inside: inside | {name: inside[name].replace(b"0", b"1")})
    refused(places, capsys, f"{name} does not fit its digest")


def test_a_run_that_needs_more_than_the_disk_has_is_refused_before_it_is_written(places, capsys, monkeypatch):
    places.export("--weights")
    monkeypatch.setattr(merging.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    assert places.take() == 2 and "and 10000 are free" in capsys.readouterr().err and entries() == []


@pytest.mark.parametrize("what", ["measured", "state.safetensors", "probes", "clients", "history.csv", "run.json"])
def test_a_list_that_fits_a_damaged_run_does_not_make_it_sound(places, capsys, what):
    """Digests of the archive are those of what was put into it; the run's own are looked at, too."""
    places.export("--weights")

    def change(inside):
        name = sorted(n for n in inside if n.startswith(f"runs/{wanted(0).key}/{what}"))[0]
        data = inside[name][:-9] + b"?" + inside[name][-8:]
        return listed(inside, wanted(0).key, name.split("/", 2)[2], data)

    rewritten(places.file, change)
    capsys.readouterr()
    assert places.take() == 1
    seen = capsys.readouterr()
    assert f"run {wanted(0).key} of {places.file}: " in seen.err and "not imported" in seen.err
    assert [e.key for e in entries()] == [wanted(1).key]
    sound(capsys, 1)


def test_a_run_that_says_that_it_has_weights_must_have_them(places, capsys):
    places.export("--weights")

    def change(inside):
        about = files.from_json(Path(), inside[LIST])
        del about["runs"][wanted(0).key]["state.safetensors"]
        del inside[f"runs/{wanted(0).key}/state.safetensors"]
        return inside | {LIST: files.as_json(about)}

    rewritten(places.file, change)
    assert places.take() == 1 and "state.safetensors is missing; not imported" in capsys.readouterr().err


@pytest.mark.parametrize("begin", ["nothing", "bare"])
def test_an_interrupted_import_leaves_whole_runs_and_goes_on(places, capsys, monkeypatch, begin):
    """Stopped before each step by which a run takes its place, one after another, until there is no such step left."""
    seeds = (0, 1) if begin == "nothing" else (0,)
    keys = [word for seed in seeds for word in ("--key", wanted(seed).key)]
    bare, whole = places.export(*keys, name="bare.zip"), places.export(*keys, "--weights", name="whole.zip")
    real, stops = merging.os, 0
    while True:
        shutil.rmtree(places.there, ignore_errors=True)
        if begin == "bare":
            assert places.take(bare) == 0
        left = [stops]

        def step(what, left=left):
            def stopped(*paths):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return getattr(real, what)(*paths)

            return stopped

        monkeypatch.setattr(merging, "os", SimpleNamespace(rename=step("rename"), replace=step("replace")))
        code = places.take(whole)
        monkeypatch.setattr(merging, "os", real)
        if code == 0:
            break
        assert code == 130
        capsys.readouterr()
        assert main(["store", "check"]) == 0, capsys.readouterr().out
        assert places.take(whole) == 0 and all(wanted(seed).w.numel() for seed in seeds)
        sound(capsys, len(seeds))
        stops += 1
    assert stops >= 4


def test_a_paper_s_runs_are_imported_from_their_folder_and_exported_by_grid(places, capsys):
    kept = PAPERS / "specgradfilter" / "runs"
    places.use(places.there)
    assert places.take(kept) == 0 and len(entries()) == len(list(kept.glob("*/run.json")))
    table = ("--grid", "specgradfilter", "table3", "--scale", "paper", "--seeds", "0", "--only", "dataset=CIFAR-10")
    found = exported(places, *table)
    assert len(found) == 8 and {Entry.of(key).about()["seed"] for key in found} == {0}
    (key,) = exported(places, *table, "--methods", "SpecGradFilter")
    assert Entry.of(key).about()["method"] == "SpecGradFilter"


def test_a_store_is_imported_without_its_unfinished_runs(places, capsys):
    places.use(places.there)
    assert places.take(places.here) == 1
    assert f"run {wanted(2).key} of {places.here / 'runs'} is not finished" in capsys.readouterr().err
    assert wanted(0).w.numel() and len(entries()) == 2
    assert places.take(places.file.parent) == 2 and "has no runs in it" in capsys.readouterr().err


def test_damage_in_a_folder_of_runs_is_refused(places, capsys):
    path = wanted(0).entry.state
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    places.use(places.there)
    assert places.take(places.here) == 1
    assert "state.safetensors is not what was written" in capsys.readouterr().err and not wanted(0).entry.started
    sound(capsys, 1)


def test_a_damaged_run_is_left_out_and_named(places, capsys):
    path = wanted(0).entry.state
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert main(["store", "export", str(places.file)]) == 0  # its numbers are sound
    places.file.unlink()
    assert main(["store", "export", str(places.file), "--weights"]) == 1
    assert f"{path}: is not what was written" in capsys.readouterr().err
    places.use(places.there)
    assert places.take() == 0 and [e.key for e in entries()] == [wanted(1).key]


def test_no_file_is_replaced_and_an_empty_one_is_not_written(places, capsys):
    file = places.export()
    places.use(places.here)
    before = file.read_bytes()
    assert main(["store", "export", str(file)]) == 2 and "is there already" in capsys.readouterr().err
    assert file.read_bytes() == before
    with pytest.raises(CannotExport, match="of 1 runs 1 are not finished"):
        export_runs([wanted(2).entry], file.with_name("none.zip"))
    assert sorted(p.name for p in file.parent.iterdir()) == ["here", "runs.zip"]


def exported(places, *more):
    """The keys of the runs that these options choose."""
    assert main(["store", "export", str(places.file), *more]) == 0
    with ZipFile(places.file) as archive:
        found = list(json.loads(archive.read(LIST))["runs"])
    places.file.unlink()
    return found


def test_runs_are_chosen_by_key_and_by_grid(places, capsys):
    both = sorted([wanted(0).key, wanted(1).key])
    assert exported(places) == both and exported(places, "--key", wanted(0).key[:8]) == [wanted(0).key]
    assert main(["store", "export", str(places.file), "--grid", "fedfft", "table1"]) == 2
    assert "are not finished" in capsys.readouterr().err
    assert main(["store", "export", str(places.file), "--grid", "fedfft", "nosuch"]) == 2


def test_weights_that_the_store_does_not_have_are_said(places, capsys):
    places.export()
    assert places.take() == 0
    places.here, places.there = places.there, places.here
    places.export("--weights", name="again.zip")
    assert "without weights, which the store does not have: 2 runs" in capsys.readouterr().err


def test_runs_that_are_in_two_places_are_compared(places, capsys):
    """Seed 0 is the same, seed 1 ends a point and a half higher there; seed 2 is not finished."""
    places.export()
    assert places.take() == 0
    before = wanted(1).accuracy
    altered(wanted(1).entry, "accuracy", before + 1.5, device_name="another GPU", weights_sha256="0" * 64)
    found = made_twice(places.here)
    assert found["same"].to_dict() == {wanted(0).key: True, wanted(1).key: False}
    assert found.loc[wanted(1).key, ["here", "there", "difference", "made here"]].tolist() == [
        before + 1.5, before, -1.5, "another GPU",
    ]  # fmt: skip
    capsys.readouterr()
    assert main(["store", "compare", str(places.file)]) == 0
    told = capsys.readouterr().out
    assert "2 runs in both places, 1 the same in every digit" in told and "another GPU" in told and "-1.50" in told
    assert main(["store", "compare", str(places.here), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("key,method,data,model,seed,here,there,same")
    assert [p for p in (merging.home() / "transit").glob("*") if p.name != "lock"] == []


def test_places_without_a_run_in_common_and_damage_are_one_line(places, capsys):
    places.export()
    assert main(["store", "compare", str(places.file)]) == 2
    assert "compare: no finished run of" in capsys.readouterr().err
    assert places.take() == 0
    history = Entry(wanted(0).key, places.here / "runs" / wanted(0).key).folder / "history.csv"
    history.write_bytes(history.read_bytes()[:-9])
    assert main(["store", "compare", str(places.here)]) == 2
    said = capsys.readouterr().err
    assert str(places.here) in said and "history.csv" in said and said.count("\n") == 1
