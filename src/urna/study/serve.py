"""A study's server in a real federation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from urna.files import check_folder, held_alone
from urna.study.file import read_study
from urna.study.journal import Journal
from urna.study.node import blank
from urna.study.over_flower import conduct
from urna.study.run import outcome_of, run_stages
from urna.study.stages import Hooks, StudyOutcome

__all__ = ["serve_study"]


def serve_study(
    grid: Any,  # noqa: ANN401 - Flower's grid
    path: Path,
    folder: Path,
    *,
    base: Path,
    version: str,
) -> StudyOutcome:
    """Be the server of a study in a federation: what a ServerApp calls.

    Args:
        grid: Flower's grid.
        path: The study file.
        folder: Where results are written, on this machine.
        base: The folder that the study's paths are relative to, on this machine.
        version: Of Urna, for the journal.

    Raises:
        ParameterError: The study cannot be run, or is finished or interrupted elsewhere.
        RoundAborted: Too few nodes take part; it says who does not and why.
    """
    study = replace(read_study(path), path=base / "study.toml")
    study = replace(study, output=replace(study.output, folder=str(folder)))
    check_folder(folder)
    with held_alone(folder, "the study"):
        journal = Journal.open(study, version)
        journal.check()
        if (found := outcome_of(journal)) is not None:
            return found
        prepared = blank(study, own=path.parent)
        hooks = Hooks(say=lambda sentence: print(sentence, flush=True))
        return run_stages(
            prepared,
            journal,
            hooks,
            None,
            lambda stages: conduct(grid, stages, nodes=study.engine.nodes),
        )
