"""The node's app: plain Flower, and three lines for the vote."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import load_partition, loss, train
from urna.flower import Voter
from urna.local import CallableObjective

app = ClientApp()

# The vote. A deployed node names its own policy file in its configuration (`urna-policy`), which
# goes before the one written here, and refuses without any. Simulated nodes need none.
Voter(CallableObjective(loss), load_partition, policy="policy.toml").mount(app)


@app.train()
def train_round(message: Message, context: Context) -> Message:
    """Train on this node's data with the hyperparameters that won."""
    config = message.content["config"]
    data = load_partition(context)
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    weights = train(
        weights,
        data,
        lr=config["lr"],
        weight_decay=config["weight_decay"],
        epochs=1,
        seed=config["server-round"],
    )
    records = {
        "arrays": ArrayRecord([weights]),
        "metrics": MetricRecord({"num-examples": len(data)}),
    }
    return Message(RecordDict(records), reply_to=message)
