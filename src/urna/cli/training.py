"""How a model is trained, on the command line: options that planning and training share."""

from enum import StrEnum
from typing import Annotated

import typer

from urna.errors import ParameterError
from urna.systems.train import (
    AdaptiveClip,
    Clip,
    Cohorts,
    EarlyStop,
    Everyone,
    Lots,
    Sampling,
    Settings,
    Validation,
    read_optimiser,
)
from urna.systems.train.optimisers import OPTIMISERS

__all__ = [
    "AdaptiveOption",
    "ClipOption",
    "MomentumOption",
    "OptimiserOption",
    "PartOption",
    "RecordClipOption",
    "RoundsOption",
    "SamplingKind",
    "SamplingOption",
    "ServerRateOption",
    "StopOption",
    "TailOption",
    "ValidateOption",
    "settings_of",
]


class SamplingKind(StrEnum):
    """Who takes part in which round."""

    EVERYONE = "everyone"
    COHORTS = "cohorts"
    LOTS = "lots"


RoundsOption = Annotated[int, typer.Option(help="Rounds of training, at most.")]
OptimiserOption = Annotated[
    str, typer.Option(help=f"What the server does with the mean: {', '.join(OPTIMISERS)}.")
]
ServerRateOption = Annotated[
    float | None, typer.Option(help="Step size of the server; the optimiser's own by default.")
]
MomentumOption = Annotated[float, typer.Option(help="Momentum of fedavgm.")]
ClipOption = Annotated[float, typer.Option(help="How long a client's update may be, in L2.")]
AdaptiveOption = Annotated[
    float | None,
    typer.Option(help="Let the clip norm follow this quantile of the updates, privately."),
]
SamplingOption = Annotated[
    SamplingKind,
    typer.Option(
        help="Who takes part: everyone; cohorts in turn; or, with amplification, by secret lots."
    ),
]
PartOption = Annotated[
    str, typer.Option(help="Part of the clients in a cohort, or a lot's probability.")
]
ValidateOption = Annotated[
    bool, typer.Option(help="Let clients judge the model, by a private tally in every round.")
]
StopOption = Annotated[bool, typer.Option(help="Stop once that tally's loss has stopped falling.")]
TailOption = Annotated[
    float, typer.Option(help="Share of the last rounds whose weights are averaged.")
]
RecordClipOption = Annotated[
    float | None, typer.Option(help="With --unit record: how long one record's gradient may be.")
]


def settings_of(
    *,
    optimiser: str,
    server_lr: float | None,
    momentum: float,
    clip: float,
    adaptive: float | None,
    sampling: SamplingKind,
    part: str,
    validate: bool,
    stop_early: bool,
    tail: float,
    record_clip: float | None,
    seed: int,
) -> Settings:
    """Return the settings that were asked for.

    Raises:
        ParameterError: They contradict each other.
    """
    chosen = {} if server_lr is None else {"lr": server_lr}
    if optimiser == "fedavgm":
        chosen["momentum"] = momentum
    clipping: Clip | float = clip if adaptive is None else AdaptiveClip(clip, adaptive)
    if stop_early and not validate:
        raise ParameterError("--stop-early looks at the private tally: say --validate as well")
    return Settings(
        optimiser=read_optimiser(optimiser, **chosen),
        clip=clipping,
        sampling=_sampling(sampling, part),
        validation=Validation() if validate else None,
        stop=EarlyStop() if stop_early else None,
        tail=tail,
        record_clip=record_clip,
        seed=seed,
    )


def _sampling(kind: SamplingKind, part: str) -> Sampling:
    if kind is SamplingKind.EVERYONE:
        return Everyone()
    return Cohorts.of(part) if kind is SamplingKind.COHORTS else Lots.of(part)
