"""A small study, for tests that run it."""

__all__ = ["STUDY"]

STUDY = """\
title = "a small one"
[data]
source = "digits"
clients = 12
[space]
lr = { kind = "log", values = [0.01, 0.1, 1.0] }
[objective]
epochs = 1
cache = false
[privacy]
epsilon = 20.0
delta = 1e-3
vote_share = 0.3
[vote]
[train]
rounds = 2
force = true
"""
