"""`urna data`: which data sets are known, and how one splits over clients."""

from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
import typer

from urna.cli.options import Said, keyed
from urna.cli.output import Format, FormatOption, print_json, print_table, table
from urna.data import catalogue, load
from urna.study.sources import gather

__all__ = ["data"]


def _data(
    said: Said,
    name: Annotated[str | None, typer.Argument(help="A data set; all of them by default.")] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the data sets, or describe one and its split over clients."""
    study = said.study()
    part, clients = study.data, study.data.clients
    if name is None:
        if clients:
            raise typer.BadParameter("--clients shows how one data set splits: name it")
        entries = [asdict(entry) for entry in catalogue()]
        if output is Format.JSON:
            print_json({"data_sets": entries})
            return
        rows = table("Data sets", "name", ">train", ">test", ">classes", "from", "licence")
        for entry in entries:
            classes = "regression" if entry["classes"] is None else str(entry["classes"])
            sizes = (f"{entry['train']:,}", f"{entry['test']:,}", classes)
            rows.add_row(entry["name"], *sizes, entry["origin"], entry["licence"])
        print_table(rows)
        return
    dataset = load(name, folder=part.folder or None, hub=part.hub)
    facts: dict[str, Any] = {
        "name": dataset.name,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "features": list(dataset.train.features.shape[1:]),
        "classes": dataset.classes,
    }
    if clients:
        parts = gather(replace(part, source=name), seed=study.seed).clients
        sizes_of = np.array([len(part) for part in parts])
        facts |= {
            "clients": clients,
            "split": str(part.split),
            "smallest": int(sizes_of.min()),
            "median": float(np.median(sizes_of)),
            "largest": int(sizes_of.max()),
        }
    if output is Format.JSON:
        print_json(facts)
        return
    rows = table(dataset.name, "", "")
    for key, value in facts.items():
        rows.add_row(key, str(value))
    print_table(rows)


data = keyed("data", _data)
