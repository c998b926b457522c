"""A study: settings by a private vote, then a model with them, under one budget and one ledger."""

from urna.study.tune import VOTE_SHARE, TunedModel, tune_then_fit

__all__ = ["VOTE_SHARE", "TunedModel", "tune_then_fit"]
