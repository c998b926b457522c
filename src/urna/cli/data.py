"""`urna data`: which data sets are known, and how one splits over clients."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from urna.cli.output import Format, FormatOption, print_json, print_table, table
from urna.data import Split, catalogue, load, split

__all__ = ["data"]


def data(
    name: Annotated[str | None, typer.Argument(help="A data set; all of them by default.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder that holds the set's file.")] = None,
    hub: Annotated[bool, typer.Option(help="Fetch it from the Hugging Face hub.")] = False,
    clients: Annotated[int | None, typer.Option(help="Show how it splits over clients.")] = None,
    how: Annotated[Split, typer.Option("--split", help="How it is split.")] = Split.IID,
    beta: Annotated[float, typer.Option(help="Concentration of Dirichlet skews.")] = 0.5,
    level: Annotated[float, typer.Option(help="Feature skew, 0 (iid) to 1.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Public seed of the split.")] = 0,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the data sets, or describe one and its split over clients."""
    if name is None:
        if clients is not None:
            raise typer.BadParameter("--clients shows how one data set splits: name it")
        entries = [dataclasses.asdict(entry) for entry in catalogue()]
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
    dataset = load(name, folder=folder, hub=hub)
    facts: dict[str, Any] = {
        "name": dataset.name,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "features": list(dataset.train.features.shape[1:]),
        "classes": dataset.classes,
    }
    if clients is not None:
        parts = split(dataset, clients=clients, how=how, beta=beta, level=level, seed=seed)
        sizes_of = np.array([len(part) for part in parts])
        facts |= {
            "clients": clients,
            "split": str(how),
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
