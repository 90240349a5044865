"""Folders of domains are read, checked and decoded once; one domain is kept for testing and never trained on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import real
from test_sources import write_fashion

from fednb.data import domains, looks, sources
from fednb.data.domains import LeaveOneOut
from fednb.data.partition import PartitionFailed, parse
from fednb.data.sources import DataNotFound, load
from fednb.engines.problem import dealt, problem_of
from fednb.engines.setting import Setting
from fednb.runs.experiment import run

OFFICE = ("Art", "Clipart", "Product", "Real World")
MADE = Setting(data="office-home-made", model="cnn-small", clients=5, participation=1.0, rounds=2, epochs=1, batch=16)


def write_domains(place, domains=("photo", "sketch"), classes=("cup", "desk", "pen"), each=5):
    """Images of one shade, wider than high: red is the class, green the domain, blue the number, times ten."""
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            (place / domain / name).mkdir(parents=True)
            for i in range(each):
                Image.new("RGB", (90, 70), (10 * c, 10 * d, 10 * i)).save(place / domain / name / f"{i}.png")
    return place


def red_green_blue(x: torch.Tensor) -> torch.Tensor:
    """Class, domain and number of each image, by the shade of its middle."""
    return x[:, :, 30, 30].long() // 10


def test_any_folder_of_domains_is_read(folder):
    """Classes and domains by the order of their names; a fifth of each class in each domain is for testing."""
    write_domains(folder / "domains")
    data = load("domains")
    assert (data.classes, data.input, data.x.dtype) == (3, (3, 64, 64), torch.uint8)
    assert (len(data.y), len(data.y_test)) == (24, 6)
    for x, y, owner in ((data.x, data.y, data.owner), (data.x_test, data.y_test, data.owner_test)):
        assert torch.equal(red_green_blue(x)[:, :2], torch.stack([y, owner], 1))
        assert (x == x[:, :, :1, :1]).all()
    pairs = [tuple(pair) for pair in torch.stack([data.y_test, data.owner_test], 1).tolist()]
    assert sorted(pairs) == [(c, d) for c in range(3) for d in range(2)]
    assert data.note == "domains 0 photo, 1 sketch; 3 classes"


def test_images_are_squeezed_whole(folder):
    """The left half white, the right half black, twice as wide as high: all of it is there, in 64x64."""
    write_domains(folder / "domains")
    half = np.zeros((40, 80, 3), dtype=np.uint8)
    half[:, :40] = 255
    for at in (folder / "domains").rglob("*.png"):
        Image.fromarray(half).save(at)
    x = load("domains").x.float()
    assert x.shape[1:] == (3, 64, 64) and (x[..., :31] > 250).all() and (x[..., 33:] < 5).all()


def test_hidden_folders_and_other_files_do_not_count(folder):
    place = write_domains(folder / "domains")
    (place / ".cache").mkdir()
    (place / "photo" / ".thumbs").mkdir()
    (place / "photo" / "cup" / "about.txt").write_text("cups")
    (place / "list.csv").write_text("")
    assert len(load("domains").y) == 24


def test_domains_are_decoded_once(folder, monkeypatch):
    """The second time no image is opened; one more image, and all are decoded again."""
    place = write_domains(folder / "domains")
    first = load("domains")
    assert [p.name for p in place.glob("*.npz")] == ["fednb-64x64.npz"] and not list(place.glob(".part*"))
    sources.held.cache_clear()
    with monkeypatch.context() as closed:
        closed.setattr(Image, "open", lambda *a: pytest.fail("an image was decoded again"))
        again = load("domains")
    assert torch.equal(first.x, again.x) and torch.equal(first.owner_test, again.owner_test) and again is not first
    Image.new("RGB", (9, 9)).save(place / "photo" / "pen" / "z.png")
    sources.held.cache_clear()
    assert len(load("domains").y) == 25


def test_an_image_that_is_replaced_is_decoded_again(folder):
    place = write_domains(folder / "domains")
    load("domains")
    for i in range(5):
        Image.new("RGB", (90, 70), (200, 0, 0)).save(place / "photo" / "cup" / f"{i}.png")
    sources.held.cache_clear()
    data = load("domains")
    assert (red_green_blue(data.x[(data.y == 0) & (data.owner == 0)])[:, 0] == 20).all()


def remove(at):
    for file in at.iterdir():
        file.unlink()
    at.rmdir()


WRONG = {
    "sketch lacks 1 of 3 classes, 'pen' among them": lambda at: remove(at / "sketch" / "pen"),
    "pen has no images": lambda at: [f.unlink() for f in (at / "photo" / "pen").iterdir()],
    "cup/0.png cannot be read: cannot identify": lambda at: (at / "photo" / "cup" / "0.png").write_text("no"),
    "at least two domains are needed": lambda at: (at / "photo").rename(at / ".photo"),
    "has 0 classes, expected some": lambda at: [remove(c) for d in at.iterdir() for c in d.iterdir()],
    "fewer than three images": lambda at: [f.unlink() for f in at.rglob("*.png") if f.stem > "1"],
}  # fmt: skip


@pytest.mark.parametrize("says", WRONG)
def test_what_is_wrong_with_a_folder_is_said(folder, says):
    WRONG[says](write_domains(folder / "domains"))
    with pytest.raises(DataNotFound) as raised:
        load("domains")
    assert says in str(raised.value)


def test_a_truncated_image_is_said_and_nothing_is_kept(folder):
    place = write_domains(folder / "domains")
    broken = place / "sketch" / "desk" / "2.png"
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(DataNotFound, match=r"2\.png cannot be read"):
        load("domains")
    assert not list(place.glob("*.npz")) and not list(place.glob(".part*"))


@pytest.mark.parametrize(
    "name, way", [("office-home", "form on the Office-Home page"), ("domains", "a folder for each")]
)
def test_absent_domains_say_where_to_get_them(folder, name, way):
    with pytest.raises(DataNotFound, match=rf"'{name}' is not here: .* it cannot be downloaded.*{way}"):
        load(name)
    assert sources.available(name) == ""


def test_office_home_must_have_its_domains_and_classes(folder):
    """A made one: 65 classes, domains numbered as printed; with another number of classes it is refused."""
    place = folder / "OfficeHomeDataset_10072016"
    write_domains(place, OFFICE, [f"Thing_{i:02d}" for i in range(65)], each=3)
    data = load("office-home")
    assert (data.classes, len(data.y), len(data.y_test)) == (65, 4 * 65 * 2, 4 * 65)
    assert data.owner.unique().tolist() == [0, 1, 2, 3] and data.note == "subset: 780 of 15588 images"
    for domain in OFFICE:
        remove(place / domain / "Thing_64")
    sources.held.cache_clear()
    with pytest.raises(DataNotFound, match="has 64 classes, expected 65"):
        load("office-home")


def holders(kind: LeaveOneOut, clients: int, seed: int = 0):
    data = load("office-home-made")
    parts = kind.split(data.y.numpy(), clients, seed, data.owner.numpy())
    return data, parts, [data.owner[part].unique().tolist() for part in parts]


@pytest.mark.parametrize("target", range(4))
@pytest.mark.parametrize("clients", [3, 7])
def test_the_target_is_tested_and_never_trained_on(target, clients):
    """No sample twice, each client one domain, domains in turn; the test set is all of the target and nothing else."""
    data, parts, held = holders(LeaveOneOut(target), clients)
    rest = [d for d in range(4) if d != target]
    assert held == [[rest[i % 3]] for i in range(clients)]
    together = np.concatenate(parts)
    assert len(set(together)) == len(together) == int((data.owner != target).sum())
    assert all(np.array_equal(part, np.sort(part)) and part.dtype == np.int64 for part in parts)
    changed = LeaveOneOut(target).changed(data, parts, 0)
    assert set(changed.owner_test.tolist()) == {target}
    assert len(changed.y_test) == int((data.owner == target).sum() + (data.owner_test == target).sum())
    trained = {x.numpy().tobytes() for x in changed.x[together]}
    assert not trained & {x.numpy().tobytes() for x in changed.x_test}
    assert changed is LeaveOneOut(target).changed(data, parts, 0)


def test_clients_of_a_domain_share_it_evenly():
    _, parts, _ = holders(LeaveOneOut(0), 7)  # 128 samples a domain; three clients of the first, two of the others
    assert [len(part) for part in parts] == [43, 64, 64, 43, 64, 64, 42]


def test_a_share_is_taken_of_every_class():
    """16 training samples of each class in each domain: a tenth is 1.6, so two; a hundredth is none, so one."""
    for share, count in ((0.1, 2), (0.01, 1), (1.0, 16)):
        data, parts, _ = holders(LeaveOneOut(1, share), 3)
        for part in parts:
            assert data.y[part].bincount(minlength=8).tolist() == [count] * 8


def test_a_seen_target_is_trained_on_and_its_held_out_samples_tested():
    kind = LeaveOneOut(2, seen=True)
    data, parts, held = holders(kind, 4)
    assert held == [[0], [1], [2], [3]]
    changed = kind.changed(data, parts, 0)
    assert torch.equal(changed.x_test, data.x_test[data.owner_test == 2]) and set(changed.owner_test.tolist()) == {2}


def test_the_split_is_a_function_of_the_seed():
    _, first, _ = holders(LeaveOneOut(0, 0.5), 6, seed=3)
    _, again, _ = holders(LeaveOneOut(0, 0.5), 6, seed=3)
    _, other, _ = holders(LeaveOneOut(0, 0.5), 6, seed=4)
    assert all(map(np.array_equal, first, again)) and not all(map(np.array_equal, first, other))


def test_the_text_of_the_partition():
    assert parse("domains(target=3, share=0.1)") == LeaveOneOut(3, 0.1)
    assert str(LeaveOneOut(3, 0.1)) == "domains(target=3, share=0.1)"
    assert parse(str(LeaveOneOut(1, seen=True))) == LeaveOneOut(1, seen=True)


@pytest.mark.parametrize(
    "kind, clients, says",
    [
        (LeaveOneOut(4), 3, r"target=4; the data has domains \[0, 1, 2, 3\]"),
        (LeaveOneOut(0), 2, "clients=2 for 3 domains"),
        (LeaveOneOut(0, 0.01), 30, "domain 1 has 8 samples for 10 clients"),
    ],
)
def test_what_cannot_be_dealt_is_said(kind, clients, says):
    with pytest.raises(PartitionFailed, match=says):
        holders(kind, clients)


def test_data_without_domains_and_shares_above_one_are_refused():
    with pytest.raises(PartitionFailed, match="this data set knows no domains"):
        LeaveOneOut().split(np.zeros(9, int), 3, 0)
    with pytest.raises(ValueError, match=r"share=1\.5; allowed is above 0 and at most 1"):
        LeaveOneOut(share=1.5)


def test_the_problem_is_tested_on_the_target():
    setting = MADE.but(partition="domains(target=3, share=0.5)")
    data, parts = dealt(setting, 0)
    problem = problem_of(setting, 0)
    assert len(problem.test[1]) == 160 and sum(map(len, parts)) == 3 * 64 == int(problem.sizes.sum())
    assert torch.equal(problem.test[0], domains.tested_on(load("office-home-made"), 3, False).x_test)
    assert data.x is load("office-home-made").x  # nothing is copied of what is trained on


def test_engines_see_the_same_domains(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "a"))
    setting = MADE.but(partition="domains(target=0, share=0.5)", precision="fp64")
    loop = run(setting, "fedavg", engine="loop", device="cpu", progress=False)
    monkeypatch.setenv("FEDNB_STORE", str(tmp_path / "b"))
    pool = run(setting, "fedavg", engine="pool", device="cpu", workers=2, progress=False)
    assert loop.accuracies == pool.accuracies and torch.equal(loop.w, pool.w)


def test_made_domains_share_their_classes_and_not_their_looks():
    """Grey, standardised, light or dark alike: three domains' class means find 70% of the fourth (chance is 13%)."""
    data = load("office-home-made")
    grey = data.x.double().mean(1).flatten(1)
    grey = (grey - grey.mean(1, keepdim=True)) / grey.std(1, keepdim=True)
    for target in range(4):
        own = data.owner == target
        sign = torch.where(torch.isin(data.owner, torch.tensor([1, 2])), -1.0, 1.0)[:, None]  # dark shapes on white
        means = torch.stack([(sign * grey)[~own & (data.y == c)].mean(0) for c in range(8)])
        found = (grey[own] @ means.T).abs().argmax(1)
        assert (found == data.y[own]).double().mean() > 0.7
    light = [float(data.x[data.owner == d].double().mean()) for d in range(4)]
    assert min(light[1:3]) > max(light[0], light[3])


def test_fashion_in_looks_takes_every_image_once(folder):
    """128 of 160 made images, a quarter in each look up to what classes leave over; the same ones every time."""
    write_fashion(folder, train=160, test=10)
    source = replace(sources.find("fashion-looks"), train=96, test=32)
    found = looks.InLooks(sources.FASHION).read(source, folder)
    y, owner = torch.cat([found.y, found.y_test]), torch.cat([found.owner, found.owner_test])
    assert found.x.shape[1:] == (3, 28, 28) and len(y) <= 128
    assert (owner.bincount().max() - owner.bincount().min()) <= 10 and set(owner.tolist()) == {0, 1, 2, 3}
    again = looks.InLooks(sources.FASHION).read(source, folder)
    assert torch.equal(found.x, again.x) and torch.equal(found.owner_test, again.owner_test)


def test_looks_by_hand():
    """A shape that is nothing but light: dark colour of clipart, near black on white; a dark one is their white."""
    rng = np.random.default_rng(0)
    bright, dark = np.ones((4, 5, 5)), np.zeros((4, 5, 5))
    assert (looks.flat(bright, rng).sum(1) == 1).all() and (looks.flat(dark, rng) == 1).all()
    assert (looks.on_white(bright, rng) <= 0.3).all() and (looks.on_white(dark, rng) == 1).all()
    assert (looks.painted(bright, rng).mean((2, 3)) > looks.painted(dark, rng).mean((2, 3))).all()
    first, second = (looks.cluttered(shapes, np.random.default_rng(1)) for shapes in (bright, dark))
    assert np.allclose(first - second, 0.6)
    assert (looks.flat(np.full((1, 2, 2), 0.45), rng).sum(1) == 2).all()  # half-way: three steps


@real("fashion-mnist")
@pytest.mark.data
def test_real_fashion_in_looks():
    data = load("fashion-looks")
    assert (len(data.y), len(data.y_test)) == (6400, 1600)
    assert data.owner.bincount().tolist() == [1600] * 4 and data.y.bincount().tolist() == [640] * 10


@real("office-home")
@pytest.mark.data
def test_real_office_home():
    data = load("office-home")
    both = torch.cat([data.owner, data.owner_test]).bincount().tolist()
    assert both == [2427, 4365, 4439, 4357] and data.note == ""
