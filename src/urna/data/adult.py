"""UCI Adult: from columns of a census table to numbers.

The categories and their order are those of the set's own description, written out here, so
that every file and every party gets the same 108 columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data.dataset import Dataset, Samples
from urna.data.embedded import standardise
from urna.errors import ParameterError

__all__ = ["CATEGORIES", "NUMBERS", "adult"]

NUMBERS = (
    "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week",
)  # fmt: skip
"""Numeric columns, standardised with statistics of the training rows."""

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "workclass": (
        "?", "Federal-gov", "Local-gov", "Never-worked", "Private", "Self-emp-inc",
        "Self-emp-not-inc", "State-gov", "Without-pay",
    ),
    "education": (
        "10th", "11th", "12th", "1st-4th", "5th-6th", "7th-8th", "9th", "Assoc-acdm",
        "Assoc-voc", "Bachelors", "Doctorate", "HS-grad", "Masters", "Preschool",
        "Prof-school", "Some-college",
    ),
    "marital_status": (
        "Divorced", "Married-AF-spouse", "Married-civ-spouse", "Married-spouse-absent",
        "Never-married", "Separated", "Widowed",
    ),
    "occupation": (
        "?", "Adm-clerical", "Armed-Forces", "Craft-repair", "Exec-managerial",
        "Farming-fishing", "Handlers-cleaners", "Machine-op-inspct", "Other-service",
        "Priv-house-serv", "Prof-specialty", "Protective-serv", "Sales", "Tech-support",
        "Transport-moving",
    ),
    "relationship": (
        "Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife",
    ),
    "race": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
    "sex": ("Female", "Male"),
    "native_country": (
        "?", "Cambodia", "Canada", "China", "Columbia", "Cuba", "Dominican-Republic",
        "Ecuador", "El-Salvador", "England", "France", "Germany", "Greece", "Guatemala",
        "Haiti", "Holand-Netherlands", "Honduras", "Hong", "Hungary", "India", "Iran",
        "Ireland", "Italy", "Jamaica", "Japan", "Laos", "Mexico", "Nicaragua",
        "Outlying-US(Guam-USVI-etc)", "Peru", "Philippines", "Poland", "Portugal",
        "Puerto-Rico", "Scotland", "South", "Taiwan", "Thailand", "Trinadad&Tobago",
        "United-States", "Vietnam", "Yugoslavia",
    ),
}  # fmt: skip
"""Categorical columns and their categories, one output column each, in this order."""

_INCOMES = ("<=50K", ">50K")


def adult(columns: Mapping[str, Sequence[Any]], train: npt.NDArray[np.bool_]) -> Dataset:
    """Return Adult from its columns by name.

    The target is 1 where the income is above 50K. Numeric columns come first, standardised
    with training rows only; then one column per category.

    Args:
        columns: The 14 columns and `income`. Spaces around a text and a full stop behind an
            income are ignored: the set's own test file has them.
        train: Which rows are training rows; the others are test rows.

    Raises:
        ParameterError: A column is missing, a number is not finite or a category unknown.
    """
    wanted = (*NUMBERS, *CATEGORIES, "income")
    if lacking := [name for name in wanted if name not in columns]:
        raise ParameterError(
            f"Adult has 15 columns; missing are {', '.join(lacking)}; found are "
            f"{', '.join(sorted(columns)) or 'none'}"
        )
    if train.all() or not train.any():
        raise ParameterError("Adult needs training rows and test rows; one of them is empty")
    numbers = np.stack([_numbers(name, columns[name]) for name in NUMBERS], axis=1)
    hot = [
        np.eye(len(order), dtype=np.float32)[_places(name, columns[name], order)]
        for name, order in CATEGORIES.items()
    ]
    incomes = [str(income).strip().removesuffix(".") for income in columns["income"]]
    targets = _places("income", incomes, _INCOMES).astype(np.int64)

    train_numbers, test_numbers = standardise(numbers[train], numbers[~train])
    return Dataset(
        "adult",
        Samples(np.hstack([train_numbers, *(h[train] for h in hot)]), targets[train]),
        Samples(np.hstack([test_numbers, *(h[~train] for h in hot)]), targets[~train]),
        classes=2,
    )


def _numbers(name: str, column: Sequence[Any]) -> npt.NDArray[np.float64]:
    try:
        numbers = np.array(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"Adult's column {name!r} must hold numbers only") from error
    if not np.isfinite(numbers).all():
        raise ParameterError(f"Adult's column {name!r} must hold finite numbers in every row")
    return numbers


def _places(name: str, column: Sequence[Any], order: Sequence[str]) -> npt.NDArray[np.intp]:
    place = {category: i for i, category in enumerate(order)}
    found = [place.get(str(value).strip()) for value in column]
    unknown = sum(1 for p in found if p is None)
    if unknown:
        # The value itself stays out of the message: it is somebody's record.
        raise ParameterError(
            f"Adult's column {name!r} has {unknown} values that are none of the set's "
            f"{len(order)} categories ({', '.join(order[:3])}, ...)"
        )
    return np.array(found, dtype=np.intp)
