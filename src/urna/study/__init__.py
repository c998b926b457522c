"""What is done with several of Urna's systems under one ledger: tune, then train."""

from urna.study.tune_and_train import Division, Tuned, divide, tune_and_train

__all__ = ["Division", "Tuned", "divide", "tune_and_train"]
