"""Small files in the format of Ali-CCP, faults included, and a plain parser of them that shares no code with ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Feature = tuple[str, str, str]  # field id, feature id, value

USER_SINGLE = ["101", "121", "122", "124", "125", "126", "127", "128", "129"]
USER_MANY = ["109_14", "110_14", "127_14", "150_14"]
ITEM_SINGLE = ["205", "206", "207", "216", "301"]
ITEM_REAL = ["508", "509", "702", "853"]
COLUMN = {
    "101": "user_id",
    "121": "user_profile",
    "122": "user_group",
    "124": "user_gender",
    "125": "user_age",
    "126": "user_consumption_1",
    "127": "user_consumption_2",
    "128": "user_occupation",
    "129": "user_geography",
    "205": "item",
    "206": "item_category",
    "207": "item_shop",
    "216": "item_brand",
    "301": "position",
    "109_14": "user_categories",
    "110_14": "user_shops",
    "127_14": "user_brands",
    "150_14": "user_intentions",
    "210": "item_intentions",
    "508": "category_match",
    "509": "shop_match",
    "702": "brand_match",
    "853": "intention_match",
}

N_USERS = 30
N_GROUPS = 5
MISSING_GROUP = 7
"""Every 7th user has no user group, every 11th two of them."""


def write_list(features: Iterable[Feature]) -> str:
    return "\x01".join(f"{field}\x02{feature}\x03{value}" for field, feature, value in features)


def write_skeleton(key: object, click: object, conversion: object, index: str, features: Sequence[Feature]) -> str:
    return f"{key},{click},{conversion},{index},{len(features)},{write_list(features)}"


def write_common(index: str, features: Sequence[Feature]) -> str:
    return f"{index},{len(features)},{write_list(features)}"


def name_index(half: str, user: int) -> str:
    return f"{user * 7919 + (1 if half == 'train' else 2):016x}"


def draw_common(half: str, rng: np.random.Generator) -> list[str]:
    """One line per user: lists of 0 to 5 values, a field nobody asked for, some fields missing or twice."""
    lines = []
    for user in range(N_USERS):
        features = [(field, str(int(field) * 1000 + user % N_GROUPS), "1.0") for field in USER_SINGLE]
        if user % MISSING_GROUP == 0:
            features = [feature for feature in features if feature[0] != "122"]
        elif user % 11 == 0:
            features.append(("122", "122999", "1.0"))
        if user % 5 == 0:
            features = [feature for feature in features if feature[0] != "101"]
        for field in USER_MANY:
            weights = np.round(rng.gamma(1.0, 1.0, rng.integers(0, 6)), 5)
            features += [(field, str(9_000_000 + i), repr(float(weight))) for i, weight in enumerate(weights)]
        features.append(("999", "1", "2.5E-3"))
        lines.append(write_common(name_index(half, user), features))
    return lines


def draw_skeleton(half: str, n_rows: int, rng: np.random.Generator) -> list[str]:
    """Impressions; clicks depend on the user's group, the item's category and field 508."""
    lines = []
    for key in range(1, n_rows + 1):
        user, category = int(rng.integers(N_USERS)), int(rng.integers(4))
        match = round(float(rng.normal()), 5)
        logit = -1.5 + 0.8 * (user % N_GROUPS - 2) + 0.5 * (category - 1.5) + 0.5 * match
        click = int(rng.random() < 1 / (1 + np.exp(-logit)))
        features = [
            ("205", str(100 + int(rng.integers(50))), "1.0"),
            ("206", f"206{category}", "1.0"),
            ("301", str(int(rng.integers(3))), "1.0"),
        ]
        features += [("210", str(int(node)), "1.0") for node in rng.integers(0, 9, rng.integers(0, 4))]
        if key % 3:
            features.append(("508", "7", repr(match)))
        if key % 10 == 0:  # a real-valued field that stands twice
            features += [("853", "8", ".25"), ("853", "9", "-1e-1")]
        conversion = int(click and rng.random() < 0.2)
        lines.append(write_skeleton(key, click, conversion, name_index(half, user), features))
    return lines


def list_skeleton_faults() -> list[tuple[str, list[str]]]:
    """(line, its reasons) of every kind; they belong to the train half and are written in this order."""
    good: Sequence[Feature] = (("205", "1", "1.0"),)
    index = name_index("train", 1)
    unknown, faulty, repeated = "f" * 16, "bad0000000000001", "bad0000000000002"
    no_common = "common_feature_index has no usable line in common_features"
    unparsable = "feature_list cannot be parsed"
    length = "feature_num is not the list's length"
    again = write_skeleton(90_021, 0, 0, index, good)
    wrong_twice = write_skeleton(90_024, 3, 0, index, good)
    return [
        ("", ["line has not 6 columns"]),
        (f"90001,0,0,{index},1", ["line has not 6 columns"]),
        (write_skeleton(90_002, 0, 0, index, good) + ",", ["line has not 6 columns"]),
        (write_skeleton("", 0, 0, index, good), ["sample_id is empty"]),
        (write_skeleton(90_003, 2, 0, index, good), ["click is not 0 or 1"]),
        (write_skeleton(90_004, "", 0, index, good), ["click is not 0 or 1"]),
        (write_skeleton(90_005, 1, "yes", index, good), ["conversion is not 0 or 1"]),
        (write_skeleton(90_006, 0, 1, index, good), ["conversion without click"]),
        (f"90007,0,0,{index},2,{write_list(good)}", [length]),
        (f"90008,0,0,{index},many,{write_list(good)}", [length]),
        (f"90009,0,0,{index},1,", [length]),
        (f"90010,0,0,{index},2,{write_list(good)}\x01", [unparsable]),
        (f"90011,0,0,{index},1,205\x021", [unparsable]),
        (write_skeleton(90_012, 0, 0, index, [("205", "1", "one")]), [unparsable]),
        (write_skeleton(90_013, 0, 0, index, [("205", "", "1.0")]), [unparsable]),
        (write_skeleton(90_014, 0, 0, index, [("", "1", "1.0")]), [unparsable]),
        (write_skeleton(90_015, 0, 0, index, [("508", "1", "1e999")]), [unparsable]),
        (write_skeleton(90_016, 0, 0, index, [("205", "1", "1.2.3")]), [unparsable]),
        (write_skeleton(90_017, 0, 0, unknown, good), [no_common]),
        (write_skeleton(90_018, 0, 0, faulty, good), [no_common]),
        (write_skeleton(90_019, 0, 0, repeated, good), [no_common]),
        (write_skeleton(90_020, 0, 0, name_index("test", 1), good), [no_common]),  # of the other half
        (again, ["sample_id is repeated"]),
        (again, ["sample_id is repeated"]),  # an exact copy
        (write_skeleton(90_022, 0, 0, index, good), ["sample_id is repeated"]),
        (write_skeleton(90_022, 1, 0, index, good), ["sample_id is repeated"]),  # not a copy
        (write_skeleton(90_023, 5, 7, unknown, good), ["click is not 0 or 1", "conversion is not 0 or 1", no_common]),
        (wrong_twice, ["click is not 0 or 1", "sample_id is repeated"]),
        (wrong_twice, ["click is not 0 or 1", "sample_id is repeated"]),
    ]


def list_common_faults() -> list[tuple[str, list[str]]]:
    """(line, its reasons) of every kind, for the train half."""
    good: Sequence[Feature] = (("122", "1", "1.0"),)
    repeated = "common_feature_index is repeated"
    return [
        ("0000,1", ["line has not 3 columns"]),
        (write_common("", good), ["common_feature_index is empty"]),
        (f"bad0000000000001,5,{write_list(good)}", ["feature_num is not the list's length"]),
        ("bad0000000000003,1,122\x031\x021.0", ["feature_list cannot be parsed"]),
        (write_common("bad0000000000002", good), [repeated]),
        (write_common("bad0000000000002", [("122", "2", "1.0")]), [repeated]),
    ]


def write_files(
    folder: Path, n_train: int = 400, n_test: int = 200, *, faults: bool = True, seed: int = 3
) -> dict[str, list[str]]:
    """Writes the four files; returns their lines by file name without .csv. The last lines of train have no feature."""
    rng = np.random.default_rng(seed)
    files: dict[str, list[str]] = {}
    for half, n_rows in (("train", n_train), ("test", n_test)):
        files[f"common_features_{half}"] = draw_common(half, rng)
        files[f"sample_skeleton_{half}"] = draw_skeleton(half, n_rows, rng)
    files["common_features_train"].append("0123456789abcdef,0,")
    files["sample_skeleton_train"].append("70000,1,1,0123456789abcdef,0,")
    if faults:
        files["common_features_train"] += [line for line, _ in list_common_faults()]
        files["sample_skeleton_train"] += [line for line, _ in list_skeleton_faults()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / f"{name}.csv").write_bytes(("\n".join(lines) + "\n").encode())
    return files


def parse_files(files: dict[str, list[str]]) -> tuple[dict[str, dict[str, Any]], dict[str, Counter[str]]]:
    """The oracle: samples by their id (without split), and per file the lines that are no sample, with their number."""
    samples: dict[str, dict[str, Any]] = {}
    rejected: dict[str, Counter[str]] = {name: Counter() for name in files}
    for half in ("train", "test"):
        users: dict[str, list[list[str]]] = {}
        common, skeleton = files[f"common_features_{half}"], files[f"sample_skeleton_{half}"]
        uses = Counter(line.split(",")[0] for line in common)
        for line in common:
            cells = line.split(",")
            features = _read_list(*cells[1:]) if len(cells) == 3 and cells[0] and uses[cells[0]] == 1 else None
            if features is None:
                rejected[f"common_features_{half}"][line] += 1
            else:
                users[cells[0]] = features
        ids = Counter(line.split(",")[0] for line in skeleton if line.count(",") == 5)
        for line in skeleton:
            row = _read_impression(line, ids, users)
            if row is None:
                rejected[f"sample_skeleton_{half}"][line] += 1
            else:
                samples[f"{half}-{line.split(',')[0]}"] = row | {"sample_id": f"{half}-{line.split(',')[0]}"}
    return samples, rejected


def _read_impression(line: str, ids: Counter[str], users: dict[str, list[list[str]]]) -> dict[str, Any] | None:
    cells = line.split(",")
    if len(cells) != 6 or not cells[0] or ids[cells[0]] > 1 or cells[3] not in users:
        return None
    features = _read_list(*cells[4:])
    if cells[1:3] not in (["0", "0"], ["1", "0"], ["1", "1"]) or features is None:
        return None
    row: dict[str, Any] = {"click": int(cells[1]), "conversion": int(cells[2])}
    for own, single, many in ((users[cells[3]], USER_SINGLE, USER_MANY), (features, ITEM_SINGLE, ["210"])):
        for field in single:
            row[COLUMN[field]] = next((feature for name, feature, _ in own if name == field), None)
        for field in many:
            weights = [float(value) for name, _, value in own if name == field]
            row[f"{COLUMN[field]}_n"], row[f"{COLUMN[field]}_weight"] = len(weights), sum(weights, 0.0)
    for field in ITEM_REAL:
        weights = [float(value) for name, _, value in features if name == field]
        row[COLUMN[field]] = sum(weights) if weights else None
    return row


def _read_list(number: str, text: str) -> list[list[str]] | None:
    """Triples of field, feature, value; None where they are not as many as said or one is no triple."""
    parts = text.split("\x01") if text else []
    features = [re.split("[\x02\x03]", part) for part in parts]
    if number != str(len(features)):
        return None
    for part, feature in zip(parts, features, strict=True):
        if [c for c in part if c < "\x04"] != ["\x02", "\x03"] or not all(feature):
            return None
        try:
            if not np.isfinite(float(feature[2])):
                return None
        except ValueError:
            return None
    return features
