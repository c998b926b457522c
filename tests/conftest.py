"""What several rooms' tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of full data sets, or skip the test."""
    named = os.environ.get("URNA_DATA")
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(named) if named else beside
    if not folder.is_dir():
        pytest.skip("full data sets are not here; set URNA_DATA to the folder that holds them")
    return folder
