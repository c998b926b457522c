"""How long do people use a device each day? A private histogram, every day, within one budget.

python daily.py FOLDER          hold the next day; call it once a day, for a week at most

Mean and median are read from the same histogram and cost nothing more. FOLDER holds the ledger and
what was published so far; a call that was killed is made again, and nothing is counted twice.
"""

import json
import sys
from pathlib import Path

import numpy as np

from urna.errors import UrnaError
from urna.files import write_whole
from urna.privacy import Budget, Ledger
from urna.tally import Counts, Histogram, Reading, Series

DEVICES, DAYS = 300, 7
BUDGET = Budget(epsilon=4.0, delta=1e-5)  # for the whole week, for each device
HOURS = Histogram.even(0.0, 12.0, 24)


def used(device: int, day: int) -> float:
    """Return what one device knows: its own hours of one day."""
    rng = np.random.default_rng([device, day])
    return float(rng.gamma(2.0 + (day % 7 > 4), 1.2))


def main(folder: Path) -> None:
    """Hold the next day's sum, and publish what it says."""
    folder.mkdir(parents=True, exist_ok=True)
    published = folder / "days.json"
    days = json.loads(published.read_text()) if published.exists() else []
    ledger = Ledger.open(folder / "ledger", BUDGET)
    entries = ledger.entries()
    series = Series.of(
        HOURS,
        DEVICES,
        BUDGET,
        rounds=DAYS,
        label="hours of use",
        ledger=ledger,
        entry=entries[0].id if entries else None,
        done=len(days),
        dropout=0.2,
    )
    day = len(days) + 1

    def publish(found: Reading[Counts]) -> None:
        days.append({"day": day, "counts": found.value.counts.round(1).tolist()})
        write_whole(published, json.dumps(days).encode())  # nothing is public before this

    # Some devices are off; they say nothing, under everybody's noise.
    hours = {device: used(device, day) for device in range(DEVICES) if device % 9}
    found = series.hold(hours, keep=publish)
    counts = found.value
    print(f"day {day}: {found.took_part} devices, half use it less than", end=" ")
    print(f"{counts.quantile(0.5):.1f} h, mean {counts.mean:.1f} h, counts ± {counts.error:.1f}")
    for low, count in zip(HOURS.edges, counts.counts, strict=False):
        print(f"{low:5.1f} h {'█' * max(0, round(count / 2))}")
    print(f"so far: {found.privacy}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "daily"))
    except UrnaError as error:
        sys.exit(f"error: {error}")
