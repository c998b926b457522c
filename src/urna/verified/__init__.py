"""Verified ballots, counted by two organisations."""

__all__: list[str] = []
