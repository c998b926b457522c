"""Forecasts of votes on synthetic loss surfaces. Everything is public; nothing is spent."""

from urna.forecast.votes import Forecast, Openings, forecast

__all__ = ["Forecast", "Openings", "forecast"]
