"""The server's app: vote, then federated averaging with the winner."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import SPACE, accuracy, fresh_weights, test_samples
from urna.flower import Deadlines, Federation, poll
from urna.privacy import Budget
from urna.systems.vote import Reveal, VoteSettings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Tune and train."""
    settings: Mapping[str, Any] = context.run_config
    reveal = Reveal()
    if settings["helper"]:  # only the winner is revealed: nobody sees counts
        reveal = Reveal("winner", settings["helper"], settings["verified"])
    result = poll(
        grid,
        SPACE,
        budget=Budget(settings["epsilon"], settings["delta"]),
        dropout=settings["dropout"],
        settings=VoteSettings(reveal=reveal),
        federation=Federation(
            wait_for=settings["nodes"],
            least_clients=settings["least-clients"],
            directory=Path(settings["directory"]) if settings["directory"] else None,
            server_key=Path(settings["server-key"]) if settings["server-key"] else None,
            transcripts=Path(settings["transcripts"]) if settings["transcripts"] else None,
            deadlines=Deadlines(gather=120.0, evaluate=300.0, stage=settings["stage-seconds"]),
        ),
    )
    print(result, flush=True)
    for node, reason in {**result.lost, **result.faults}.items():
        print(f"node {node}: {reason}", flush=True)
    if settings["report"]:
        Path(settings["report"]).write_text(result.as_json(), encoding="utf-8")
    if settings["rounds"] == 0:
        return
    test = test_samples()

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        (weights,) = arrays.to_numpy_ndarrays()
        return MetricRecord({"accuracy": accuracy(weights, test)})

    strategy = FedAvg(fraction_evaluate=0.0)
    trained = strategy.start(
        grid,
        initial_arrays=ArrayRecord([fresh_weights()]),
        train_config=ConfigRecord(result.best),
        num_rounds=settings["rounds"],
        evaluate_fn=evaluate,
    )
    last = max(trained.evaluate_metrics_serverapp)
    reached = trained.evaluate_metrics_serverapp[last]["accuracy"]
    print(f"accuracy after {last} rounds: {reached:.3f}", flush=True)
