"""The page and the picture of a combination: well-formed, and no more than was opened."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import read

from urna.privacy import Budget
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.report import page, settings_chart
from urna.space import Axis, Space
from urna.systems.combine import (
    Combination,
    FederatedDbscan,
    Frame,
    Guarantee,
    LocalSearch,
    Searches,
    combine,
)
from urna.tally import Run

RATES, MOMENTA = (0.01, 0.1, 1.0), (0.0, 0.5, 0.9)
GRID = np.array([(lr, momentum) for lr in RATES for momentum in MOMENTA])
FRAME = Frame.of(Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA)), log=True)
SCORES = np.random.default_rng(3).random((6, len(GRID))).round(3)
SEARCHES = Searches(FRAME, tuple(LocalSearch(GRID, row) for row in SCORES))


def combined(guarantee: Guarantee) -> Combination:
    return combine(
        SEARCHES,
        "mean" if guarantee.private else FederatedDbscan(min_points=2),
        guarantee=guarantee,
        budget=Budget(8.0, 1e-5) if guarantee.private else None,
        run=Run(secrets=OsSecrets() if guarantee.private else ScriptedSecrets(b"page")),
    )


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_page_is_well_formed_and_says_what_is_promised(guarantee: Guarantee) -> None:
    result = combined(guarantee)
    text = page(result, title="clients")
    assert read(text).wrong == []
    said = {
        Guarantee.NONE: "Nothing was hidden",
        Guarantee.ENCRYPTION: "NO DIFFERENTIAL PRIVACY",
        Guarantee.DP: "masks hid",
        Guarantee.BOTH: "threshold encryption hid",
    }
    assert [each for each, words in said.items() if words in text] == [guarantee]
    assert Combination.read(result.as_mapping()).as_mapping() == result.as_mapping()


def test_a_result_of_the_removed_hidden_count_still_loads() -> None:
    """Version 0.2 could open a mean without its count, as real numbers; files of it are kept."""
    kept = combined(Guarantee.ENCRYPTION).as_mapping()
    kept |= {"strategy": "mean, count hidden", "clusters": [], "cell": None}
    kept |= {"opened": [[0.51224, 0.2475]]}
    loaded = Combination.read(json.loads(json.dumps(kept)))
    assert loaded.as_mapping() == kept
    assert "mean, count hidden" in page(loaded, title="clients")


def test_a_result_of_clusters_with_noise_still_loads() -> None:
    """Version 0.2 had them: two sums, and clusters whose sizes are noisy."""
    cluster = {"setting": {"lr": 0.1, "momentum": 0.5}, "score": None, "points": 3.5}
    kept = combined(Guarantee.DP).as_mapping()
    kept |= {"strategy": "federated dbscan", "cell": 0.15, "entries": ["one", "two"]}
    kept |= {"clusters": [{**cluster, "cells": [[3, 3]]}], "opened": [[1.5, 3.5], [0.25]]}
    kept |= {"noise": [1.25, 4.5]}
    loaded = Combination.read(json.loads(json.dumps(kept)))
    assert loaded.as_mapping() == kept
    assert "3.5 clients&#39; worth" in page(loaded, title="clients")


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_only_what_was_opened_is_drawn(guarantee: Guarantee) -> None:
    result = combined(guarantee)
    drawn = ElementTree.fromstring(settings_chart(result, alone=True))
    names = [each.get("id", "") for each in drawn.iter() if each.tag.endswith("}g")]
    centres = [name for name in names if "-centre-" in name]
    points = [name for name in names if "-point-" in name]
    assert len(centres) == len(result.clusters)
    assert bool(points) == (guarantee is Guarantee.NONE)
    assert [name for name in names if name.endswith("-result")]
    assert bool(result.points) == (guarantee is Guarantee.NONE)
