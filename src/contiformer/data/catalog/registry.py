"""The catalogue: every data set the loaders know, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from contiformer.data.errors import DataError, did_you_mean

_HERE = "contiformer.data.catalog"
_UEA = "https://www.timeseriesclassification.com/aeon-toolkit"
_ETT = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small"
_TSL = "https://huggingface.co/datasets/thuml/Time-Series-Library/resolve/2b66e59ee19dac8f6f19fb5d4997f289fdfea357"
_LSTNET = "https://raw.githubusercontent.com/laiguokun/multivariate-time-series-data/master"
_EASYTPP = "https://huggingface.co/datasets/easytpp"
_ZENODO = "https://zenodo.org/records/4940267/files"
_PHYSIONET = "https://physionet.org/files/challenge-2012/1.0.0"
_DRIVE = "https://drive.google.com/drive/folders/0BwqmV0EcoUc8UklIR1BKV25YR1U?resourcekey=0-OrlU87jyc1m-dVMmY5aC4w"

_OTHERS_COUNTED = "Sizes as others counted them on the host, not checked here."


@dataclass(frozen=True)
class Source:
    """One file on its original host.

    Attributes:
        url: its address.
        target: its path below the data folder: a file, or the folder an archive is unpacked to.
        sha256: its checksum; where None, that of the first download is recorded in a ``.sha256`` file beside it.
        members: patterns of the wanted members of an archive; empty for a plain file.
    """

    url: str
    target: str
    sha256: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileForm:
    """One form of a set on disk: all of these files, gzipped or not; not ``complete`` where it lacks data."""

    files: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True)
class DatasetInfo:
    """One entry of the catalogue.

    Attributes:
        task: classification, events, forecasting or clinical.
        sizes: counts, in words or numbers.
        folder: its path below the data folder; empty for generated data.
        forms: the forms it can have there, the preferred one first.
        sources: the files on the original hosts.
        by_hand: how to get it where there is no direct download.
        loader: ``module:function``, imported when it is used.
        options: arguments of the loader for a first look at the data.
    """

    name: str
    task: str
    sizes: Mapping[str, int | str]
    licence: str
    folder: str
    forms: tuple[FileForm, ...]
    loader: str
    sources: tuple[Source, ...] = ()
    note: str = ""
    by_hand: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, **options: Any) -> Any:
        """The data; the options are those of the loader."""
        module, function = self.loader.split(":")
        return getattr(import_module(module), function)(self.name, **{**self.options, **options})

    def sizes_text(self) -> str:
        """As in ``train 275, test 300, length 144``."""
        return ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in self.sizes.items()
        )


_UEA_NOTES = {
    "CharacterTrajectories": "The reference copy was written from per-dimension files with trailing zeros cut; they "
    "were put back.",
    "HandMovementDirection": "TRAIN of the reference copy has float32 precision.",
    "Heartbeat": "The reference copy has no test part.",
    "SpokenArabicDigits": "The reference copy is the UCI original with 6600 / 2200 cases, ordered by digit.",
    "UWaveGestureLibrary": "The paper's table lists 2238 / 2241 cases, which is another split; this is the archive's.",
}


def _uea(name: str, train: int, test: int, length: str, channels: int, classes: int) -> DatasetInfo:
    folder = f"uea/{name}"
    return DatasetInfo(
        name=name,
        task="classification",
        sizes={"train": train, "test": test, "length": length, "channels": channels, "classes": classes},
        licence="none stated; cite the UEA archive and the donors",
        folder=folder,
        forms=(FileForm((f"{folder}/{name}_TRAIN.ts.gz", f"{folder}/{name}_TEST.ts.gz")),),
        loader=f"{_HERE}.uea:load_uea",
        sources=(Source(f"{_UEA}/{name}.zip", folder, members=(f"*{name}_TRAIN.ts", f"*{name}_TEST.ts")),),
        note=_UEA_NOTES.get(name, ""),
        options={"split": "train"},
    )


_CLASSIFICATION = (
    _uea("ArticularyWordRecognition", 275, 300, "144", 9, 25),
    _uea("BasicMotions", 40, 40, "100", 6, 4),
    _uea("CharacterTrajectories", 1422, 1436, "60-182", 3, 20),
    _uea("DuckDuckGeese", 60, 40, "270", 1345, 5),
    _uea("Epilepsy", 137, 138, "207", 3, 4),
    _uea("ERing", 30, 270, "65", 4, 6),
    _uea("FingerMovements", 316, 100, "50", 28, 2),
    _uea("HandMovementDirection", 160, 74, "400", 10, 4),
    _uea("Handwriting", 150, 850, "152", 3, 26),
    _uea("Heartbeat", 204, 205, "405", 61, 2),
    _uea("JapaneseVowels", 270, 370, "7-29", 12, 9),
    _uea("Libras", 180, 180, "45", 2, 15),
    _uea("LSST", 2459, 2466, "36", 6, 14),
    _uea("NATOPS", 180, 180, "51", 24, 6),
    _uea("PEMS-SF", 267, 173, "144", 963, 7),
    _uea("PenDigits", 7494, 3498, "8", 2, 10),
    _uea("RacketSports", 151, 152, "30", 6, 4),
    _uea("SelfRegulationSCP1", 268, 293, "896", 6, 2),
    _uea("SpokenArabicDigits", 6599, 2199, "4-93", 13, 10),
    _uea("UWaveGestureLibrary", 120, 320, "315", 3, 8),
)


def _events(
    name: str,
    sizes: dict[str, int | str],
    licence: str,
    folder: str,
    forms: tuple[FileForm, ...],
    sources: tuple[Source, ...] = (),
    note: str = "",
    by_hand: str = "",
    split: str = "train",
) -> DatasetInfo:
    loader, options = f"{_HERE}.events:load_events", {"split": split}
    return DatasetInfo(name, "events", sizes, licence, folder, forms, loader, sources, note, by_hand, options)


def _easytpp(
    name: str,
    sizes: dict[str, int | str],
    stored: tuple[FileForm, ...] = (),
    sums: tuple[str | None, ...] = (None, None, None),
    note: str = "",
    split: str = "train",
) -> DatasetInfo:
    folder, parts = f"tpp/{name.lower()}", ("train", "dev", "test")
    files = tuple(f"{folder}/{part}.json" for part in parts)
    sources = tuple(
        Source(f"{_EASYTPP}/{name.lower()}/resolve/main/{part}.json", path, digest)
        for part, path, digest in zip(parts, files, sums, strict=True)
    )
    licence = "EasyTPP copy: Apache-2.0"
    return _events(name, sizes, licence, folder, (FileForm(files), *stored), sources, note, split=split)


#: What each of the three experts marked, second by second.
NEONATE_FILES = {"A": "annotations_2017_A_fixed.csv", "B": "annotations_2017_B.csv", "C": "annotations_2017_C.csv"}
_NEONATE, _TRAFFIC, _MIMIC2 = "tpp/neonate", "tpp/traffic/traffic.txt.gz", "tpp/mimic2/mimic2.jsonl.gz"
_STACKOVERFLOW = "tpp/stackoverflow/stackoverflow.jsonl.gz"

# fmt: off
_EVENTS = (
    _events("Synthetic", {"sequences": 500, "folds": 4}, "generated, no licence needed", "", (),
            by_hand="it is generated on demand, by contiformer.data.synthetic"),
    _events("Neonate", {"neonates": 79, "types": 1, "folds": 4}, "CC BY 4.0 (Stevenson et al. 2019, Zenodo 4940267)",
            _NEONATE,
            (FileForm(tuple(f"{_NEONATE}/{file}.gz" for file in NEONATE_FILES.values())),
             FileForm((f"{_NEONATE}/neonate_seizure_onsets.jsonl.gz",))),
            tuple(Source(f"{_ZENODO}/{file}?download=1", f"{_NEONATE}/{file}") for file in NEONATE_FILES.values()),
            note="Seizure onsets in minutes."),
    _events("Traffic", {"sensors": 862, "hours": 17544, "types": 2, "folds": 4},
            "none stated; measured by the California PeMS", "tpp/traffic", (FileForm((_TRAFFIC,)),),
            (Source(f"{_LSTNET}/traffic/traffic.txt.gz", _TRAFFIC),),
            note="Events are derived from hourly occupancy by the paper's rule, see events_from_occupancy."),
    _events("MIMIC-II", {"train": 527, "dev": 58, "test": 65, "types": 75, "folds": 5},
            "none stated; MIMIC-II itself needs a data use agreement", "tpp/mimic2", (FileForm((_MIMIC2,)),),
            by_hand=f"take the pickles from {_DRIVE} and write them as JSON lines to {_MIMIC2}"),
    _events("BookOrder", {"train": 100, "test": 100, "types": 2, "folds": 5},
            "none stated; terms of the original data", "tpp/bookorder",
            (FileForm(tuple(f"tpp/bookorder/bookorder_fold{fold}.jsonl.gz" for fold in range(1, 6))),),
            by_hand="take the text files from GitHub dunan/NeuralPointProcess (data/real/book_order) and write them as "
            "JSON lines to tpp/bookorder/bookorder_fold1.jsonl.gz and so on"),
    _events("StackOverflow", {"train": "5307 (4276 in the reference copy)", "test": 1326, "types": 22, "folds": 5},
            "none stated; Stack Exchange data are CC BY-SA", "tpp/stackoverflow",
            (FileForm((_STACKOVERFLOW,), complete=False),),
            note="The reference copy lacks 1031 train sequences, and 474 others have float32 times, up to about 125 s "
            "off.",
            by_hand=f"take the pickles from {_DRIVE} and write them as JSON lines to {_STACKOVERFLOW}"),
    _easytpp("Taxi", {"train": 1400, "dev": 200, "test": 400, "types": 10}, (FileForm(("tpp/taxi/taxi.jsonl.gz",)),),
             ("0c54b53482e792f8cd813195e76e08466a68761b35c34cd503a012b41525d989",
              "9ae91594723cf9cba7333efa18f85d309f5ee76336cc25d5811d0364f05a3ddf",
              "dc1e765b6626c2a231ab026606e29864c082807354066e0307494fb738bcc059")),
    _easytpp("Taobao", {"train": 1300, "dev": 200, "test": 500}, note=_OTHERS_COUNTED),
    _easytpp("Retweet", {"train": 20000, "dev": 2000, "test": 2000}, note=_OTHERS_COUNTED),
    _easytpp("Earthquake", {"sequences": "not counted yet"}),
    _easytpp("Amazon", {"train": 6454, "dev": 922, "test": 1851},
             (FileForm(("tpp/amazon_partial/amazon_dev_test.jsonl.gz",), complete=False),), split="test",
             note=f"{_OTHERS_COUNTED} The reference copy is another, smaller version: 300 dev and 500 test sequences "
             "of 16 types, no train part."),
)
# fmt: on


def _forecast(
    name: str,
    rows: int,
    channels: int,
    step: str,
    licence: str,
    source: Source,
    stored: tuple[str, ...] | None = None,
    note: str = "",
) -> DatasetInfo:
    """``stored``: the files that will do, the source's own by default."""
    files = (source.target,) if stored is None else stored
    return DatasetInfo(
        name=name,
        task="forecasting",
        sizes={"rows": rows, "channels": channels, "step": step},
        licence=licence,
        folder=files[0].rpartition("/")[0],
        forms=tuple(FileForm((file,)) for file in files),
        loader=f"{_HERE}.forecasting:load_forecasting",
        sources=(source,),
        note=note,
    )


def _ett(name: str, rows: int, step: str, digest: str | None) -> DatasetInfo:
    path = f"forecast/{name}/{name}.csv"
    return _forecast(name, rows, 7, step, "CC BY-ND 4.0", Source(f"{_ETT}/{name}.csv", path, digest), (f"{path}.gz",))


_EXCHANGE = "forecast/exchange_rate/exchange_rate"
_EXCHANGE_SUM = "48b4d9d3d508f5104162e85b9a6042e3557fde11aa9f2944eba8c0d0efc89842"
_WEATHER = "forecast/weather/weather.csv"
_ILI = "forecast/national_illness/national_illness.csv"
_ILI_SUM = "93601f64d2566dc796ca4305adad8b8560c2db1a1ff04543c3bd813a7263570a"
# fmt: off
_FORECASTING = (
    _ett("ETTh1", 17420, "1 h", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
    _ett("ETTh2", 17420, "1 h", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b"),
    _ett("ETTm1", 69680, "15 min", None),
    _ett("ETTm2", 69680, "15 min", "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd"),
    _forecast("Exchange", 7588, 8, "1 day", "copy of thuml: CC BY 4.0; original states none",
              Source(f"{_TSL}/exchange_rate/exchange_rate.csv", f"{_EXCHANGE}.csv", _EXCHANGE_SUM),
              (f"{_EXCHANGE}.csv", f"{_EXCHANGE}.txt.gz")),
    _forecast("Weather", 52696, 21, "10 min",
              "copy of thuml: CC BY 4.0; measured by the Max Planck Institute for Biogeochemistry",
              Source(f"{_TSL}/weather/weather.csv", _WEATHER), (f"{_WEATHER}.gz",),
              "The value -9999 of broken sensors stays in, as in the published benchmark; it is counted in the notes."),
    _forecast("ILI", 966, 7, "7 days", "copy of thuml: CC BY 4.0; from the US CDC",
              Source(f"{_TSL}/illness/national_illness.csv", _ILI, _ILI_SUM)),
)
# fmt: on


def _physionet(letter: str, deaths: int | None) -> DatasetInfo:
    folder, low = "clinical/physionet2012", letter.lower()
    outcomes = f"{folder}/Outcomes-{low}.txt"
    sizes: dict[str, int | str] = {"records": 4000, "channels": 37, "static": 5}
    return DatasetInfo(
        name=f"PhysioNet2012-{letter}",
        task="clinical",
        sizes=sizes if deaths is None else {**sizes, "deaths": deaths},
        licence="PhysioNet open access; terms on the host",
        folder=folder,
        forms=(FileForm((f"{folder}/set-{low}.csv.gz", outcomes)), FileForm((f"{folder}/set-{low}", outcomes))),
        loader=f"{_HERE}.clinical:load_clinical",
        sources=(
            Source(f"{_PHYSIONET}/Outcomes-{low}.txt", outcomes),
            Source(f"{_PHYSIONET}/set-{low}.tar.gz", f"{folder}/set-{low}", members=(f"*set-{low}/*.txt",)),
        ),
    )


_CLINICAL = (_physionet("A", 554), _physionet("B", 568), _physionet("C", None))

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in (*_CLASSIFICATION, *_EVENTS, *_FORECASTING, *_CLINICAL)}


def dataset_info(name: str, task: str | None = None) -> DatasetInfo:
    """The entry with this name, in capital or small letters; a DataError suggests the nearest name."""
    known = {info.name.lower(): info for info in DATASETS.values() if task in {None, info.task}}
    info = known.get(name.lower())
    if info is None:
        kind = "data set" if task is None else f"data set for {task}"
        names = [entry.name for entry in known.values()]
        close = next((n for n in names if n.lower().replace("-", "") == name.lower().replace("-", "")), name)
        raise DataError(f"there is no {kind} {name!r}", remedy=did_you_mean(close, names))
    return info
