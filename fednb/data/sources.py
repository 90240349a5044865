"""The data sets by name: found on disk or downloaded, checked, and held once as tensors."""

import difflib
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fednb.base.imports import imported, is_import_path
from fednb.base.inputs import one_line, shown
from fednb.data import made
from fednb.data.dataset import Damaged, DataNotFound, Dataset, Given, Source, UnknownData, check, remark
from fednb.data.domains import OFFICE, Domains
from fednb.data.files import root
from fednb.data.looks import LOOKS, InLooks
from fednb.data.own import Preparation, own_source
from fednb.data.own_folder import BadData
from fednb.data.pictures import Blood, Cifar, Digits, Idx, TinyImageNet
from fednb.data.text import LENGTH, UNKNOWN, VOCABULARY, WINDOW, Roles, Topics
from fednb.data.writers import Writers

__all__ = [
    "BadData",
    "DataNotFound",
    "Dataset",
    "Source",
    "UnknownData",
    "add_data",
    "available",
    "find",
    "load",
    "names",
    "root",
    "table",
    "title",
]

IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
FASHION = Idx("FashionMNIST", "FashionMNIST/raw", IDX)
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
CIFAR10 = Cifar("CIFAR10", "cifar-10-batches-py", CIFAR10_FILES, (
    "c99cafc152244af753f735de768cd75f", "d4bba439e000b95fd0a9bffe97cbabec", "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a", "482c414d41f54cd18b22e5b47cb7c3cb", "40351d587109b95175f43aff81a1287e",
))  # fmt: skip
CIFAR100 = Cifar("CIFAR100", "cifar-100-python", ("train", "test", "meta"),
                 ("16019d7e3df5f24257cddd939b257f8d", "f0ef6b0ae62326f3e7ffdfab6717acfc"), "fine_labels")  # fmt: skip
HALF = ((0.5,), (0.5,))
HALVES = ((0.5,) * 3, (0.5,) * 3)

CATALOGUE = (
    # mean and standard deviation of all pixels of our training split, after division by 16; no paper uses this set
    Source("digits", 10, (1, 8, 8), 1438, 359, Digits(), (0.3054,), (0.3760,), scale=16.0),
    # FedFSA's released code: 0.5 / 0.5, no augmentation (its appendix claims one)
    Source("fashion-mnist", 10, (1, 28, 28), 60000, 10000, FASHION, *HALF),
    # FL-Simulator, and FedLESAM, FedWMSAM, FedDyn and FedFSA with it: crop from padding 4, mirror
    Source(
        "cifar10", 10, (3, 32, 32), 50000, 10000, CIFAR10,
        (0.491, 0.482, 0.447), (0.247, 0.243, 0.262), pad=4, flip=True,
    ),
    Source(
        "cifar100", 100, (3, 32, 32), 50000, 10000, CIFAR100,
        (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), pad=4, flip=True,
    ),
    # FedFSA's released code: 0.5 / 0.5, crop from padding 4, mirror
    Source("tiny-imagenet", 200, (3, 64, 64), 100_000, 10_000, TinyImageNet(), *HALVES, pad=4, flip=True),
    # the code that FedFFT names scales as (0.5 − x) / 0.5, so that ink is positive: a std of −0.5; nine tenths train
    Source("femnist", 62, (1, 28, 28), 724_737, 80_526, Writers(), (0.5,), (-0.5,), owners="writer"),
    # MedMNIST's own examples: 0.5 / 0.5, no augmentation; its 1712 validation images are left out
    Source("bloodmnist", 8, (3, 28, 28), 11_959, 3_421, Blood(), *HALVES),
    # 80 letters and one number for any other character; the next character is always one of the 80
    Source("shakespeare", 80, (UNKNOWN + 1, WINDOW), 3_803_542, 422_616, Roles(), owners="role"),
    Source("yahoo-answers", 10, (VOCABULARY, LENGTH), 1_400_000, 60_000, Topics()),
    # FedWMSAM prints neither model nor size: 64x64 as Tiny ImageNet, the largest that our ResNets are made for (small
    # things are lost at 32x32), and prepared like it; about a fifth is for testing, class by class and so rounded
    Source(
        "office-home", 65, (3, 64, 64), 12_471, 3_117,
        Domains("OfficeHomeDataset_10072016", tuple(LOOKS), OFFICE, full=15_588),
        *HALVES, pad=4, flip=True, owners="domain",
    ),
    # any folder of domains; a run's key has this name alone, so runs with another folder need another FEDNB_STORE
    Source("domains", 0, (3, 64, 64), 0, 0, Domains("domains"), *HALVES, pad=4, flip=True, owners="domain"),
    # 8,000 images of Fashion-MNIST, a quarter in each of four looks
    Source("fashion-looks", 10, (3, 28, 28), 6_400, 1_600, InLooks(FASHION), *HALVES, owners="domain"),
    # Stand-ins. The light one has smaller images, the text ones are shorter, Tiny ImageNet is 16x16 with 10 classes
    Source("femnist-made", 62, (1, 28, 28), 600, 150, made.Made(made.drawings), (0.5,), (-0.5,), owners="writer"),
    Source("femnist-light-made", 10, (1, 12, 12), 600, 150, made.Made(made.drawings), (0.5,), (-0.5,), owners="writer"),
    Source("bloodmnist-made", 8, (3, 28, 28), 400, 120, made.Made(made.pictures), *HALVES),
    Source("tiny-imagenet-made", 10, (3, 16, 16), 500, 150, made.Made(made.pictures), *HALVES, pad=1, flip=True),
    Source(
        "office-home-made", 8, (3, 16, 16), 512, 128, made.Made(made.domains), *HALVES, pad=1, flip=True,
        owners="domain",
    ),
    Source("shakespeare-made", 80, (UNKNOWN + 1, 12), 1200, 200, made.Made(made.plays), owners="role"),
    Source("yahoo-answers-made", 10, (162, 20), 600, 200, made.Made(made.questions)),
)  # fmt: skip
SOURCES = {source.name: source for source in CATALOGUE}
TITLES = {
    "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fashion-mnist": "Fashion-MNIST", "tiny-imagenet": "Tiny-ImageNet",
    "office-home": "OfficeHome", "fashion-looks": "Fashion-MNIST in four looks",
    "femnist": "FEMNIST", "bloodmnist": "BloodMNIST", "shakespeare": "Shakespeare", "yahoo-answers": "Yahoo! Answers",
}  # fmt: skip


def names() -> list[str]:
    """The names `load` takes."""
    return list(SOURCES)


def title(name: str) -> str:
    """The name that papers have for a data set; ours where no paper has it."""
    return TITLES.get(find(name).name, find(name).name)


_one_at_a_time = threading.RLock()  # a data set may be made of another


def load(name: str) -> Dataset:
    """The data set of that name; letter case, '-' and '_' do not matter. Loaded once per process and folder."""
    source = find(name)
    if isinstance(source.reader, Given):
        return source.reader.data
    with _one_at_a_time:  # threads that ask at the same time get one data set, not two
        return held(source.name, root())


def available(name: str) -> str:
    """Where the data set lies on this machine; '' if it would have to be downloaded."""
    return find(name).reader.where(root())


def table() -> list[dict[str, str | int]]:
    """One row per data set for `fednb ls data`: name, classes, shape, train, test, natural, where, note."""
    return [
        {
            "name": s.name,
            "classes": s.classes,
            "shape": f"{s.shape[1]} of {s.shape[0]} tokens" if s.text else "x".join(map(str, s.shape)),
            "train": s.train,
            "test": s.test,
            "natural": s.owners,
            "where": s.reader.where(root()) or "not here",
            "note": s.reader.note(root()),
        }
        for s in SOURCES.values()
    ]


def simplified(name: str) -> str:
    """A name as it is compared: lower case, without '-' and '_'."""
    return str(name).lower().replace("-", "").replace("_", "").strip()


def find(name: str) -> Source:
    """The catalogue line of a name; an import path such as "my_package.sets:flowers" is entered when first met."""
    if isinstance(name, str) and name in SOURCES:
        return SOURCES[name]
    if is_import_path(name):
        return _enter(_by_import_path(name))
    known = {simplified(each): source for each, source in SOURCES.items()}
    if simplified(name) in known:
        return known[simplified(name)]
    near = [known[each].name for each in difflib.get_close_matches(simplified(name)[:100], known, cutoff=0.4)]
    raise UnknownData(
        f"no data set {shown(name)}; closest: {', '.join(near or SOURCES)}. `fednb ls data` lists all {len(SOURCES)}. "
        "Yours: what fn.add_data entered in this process, or an import path, such as my_package.sets:flowers."
    )


@lru_cache(maxsize=8)
def held(name: str, folder: Path) -> Dataset:
    """Load one data set from one folder, and keep it."""
    s = SOURCES[name]
    try:
        found = s.reader.read(s, folder)
        check(s, found)
    except Damaged as error:
        raise DataNotFound(
            f"the files of {name!r} in {s.reader.where(folder)} are damaged: {error}. "
            "Delete them and run again (what can be downloaded is), or set FEDNB_DATA."
        ) from error
    return Dataset(
        name, found.x, found.y, found.x_test, found.y_test, found.classes or s.classes, s.scale, s.mean, s.std, s.pad,
        s.flip, found.vocabulary, found.owner, found.owner_test, remark(s, found),
    )  # fmt: skip


NAME = re.compile(r"[A-Za-z0-9][\w.+ -]{0,59}")
OF_THE_CATALOGUE = frozenset(map(simplified, SOURCES))


def add_data(
    name: str, train: Any, test: Any = None, owners: Any = None, *, classes: int | None = None,
    mean: float | Sequence[float] | None = None, std: float | Sequence[float] | None = None, scale: float | None = None,
    augment: str = "none", vocabulary: int = 0, channels: str = "", size: Any = None, columns: Any = None,
) -> None:  # fmt: skip
    """Enter data of your own under a name, for `fn.Setting(data=name)` in this process.

    train, test: pairs (x, y) of arrays, tensors or lists; or torch data sets whose items are such pairs, which are read
    once; or folders that have a folder of images for each class; or tables of Hugging Face's `datasets`. One folder
    with `train` and `test` in it, or one dictionary with both, is enough. A number as test, such as 0.2, holds that
    share of each class out of train. x is `[n, ...]`: images `[n, height, width]`, with channels first or last, or
    numbers `[n, features]`. y is `[n]`: classes from 0 on, or their names.
    owners: who each training sample belongs to, `[n]`, for partition="natural"; a pair of arrays also says it of the
    test samples. classes: how many there are, where not every one has a training sample.
    mean, std: a number, or one for each channel; those of the training samples without it. They apply after a
    division by scale: 255 for uint8, 1 for other numbers. augment: of training images, "flip", "crop(4)" or both with
    a + between them. vocabulary: x are texts, `[n, length]` of tokens below this number. channels: "first" or "last"
    where that cannot be seen. size: (height, width) to which images of folders and tables are brought. columns: names
    of a table's columns of samples and labels.

    A run's key has a fingerprint of all this. A name can be used again: other data replace the former, which is said.

    >>> x = np.arange(480, dtype=np.uint8).reshape(30, 4, 4)
    >>> fn.add_data("stripes", train=(x, np.arange(30) % 3), test=0.2)
    >>> setting = fn.Setting(data="stripes", partition="iid", clients=2)
    >>> fn.class_counts(setting).sum(0).tolist()
    [8, 8, 8]
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadData(f"data {shown(name)}: must be a name of letters, digits, '-' and '_'")
    if simplified(name) in OF_THE_CATALOGUE:
        raise BadData(f"data {name!r} is a data set of the catalogue (`fednb ls data`); take another name")
    how = Preparation(classes, mean, std, scale, augment, vocabulary, channels)
    _enter(own_source(name, train, test, owners, how, size, columns))


def _enter(source: Source) -> Source:
    """Keep the line of a user's data; where other data have its name, they go, and that is said."""
    former = next((known for known in SOURCES.values() if simplified(known.name) == simplified(source.name)), None)
    if former is not None and former.reader == source.reader and former.name == source.name:
        return former  # what is held of it on devices stays
    if former is not None:
        print(f"fednb: data {former.name!r} are replaced by others", file=sys.stderr)
        del SOURCES[former.name]
    SOURCES[source.name] = source
    return source


def _by_import_path(path: str) -> Source:
    """The data that an import path stands for: what `add_data` takes as train, or a table of all that it takes.

    A function without arguments is called for it.
    """
    found = imported(path)
    if callable(found) and not hasattr(found, "__getitem__"):
        try:
            found = found()
        except Exception as error:  # of a user's code
            raise BadData(f"{path!r}: {type(error).__name__}: {one_line(str(error))}") from error
    told: dict[str, Any] = {"train": found}
    if isinstance(found, Mapping) and not hasattr(found, "column_names"):
        told = dict(found)
    elif isinstance(found, tuple | list) and len(found) == 2:
        told = dict(zip(("train", "test"), found, strict=True))
    train, test, owners, size, columns = (told.pop(n, None) for n in ("train", "test", "owners", "size", "columns"))
    try:
        how = Preparation(**told)
    except TypeError as error:
        raise BadData(f"{path!r}: {one_line(str(error)).partition('()')[2].strip()}; see `help(fn.add_data)`") from None
    return own_source(path, train, test, owners, how, size, columns)
