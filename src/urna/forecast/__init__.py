"""Forecasts of votes on synthetic loss surfaces. Everything is public; nothing is spent."""

__all__: list[str] = []
