"""Forecasts of votes on synthetic loss surfaces. Everything is public; nothing is spent."""

from urna.forecast.openings import Openings, forecast_openings, winner_beside
from urna.forecast.surfaces import KINDS, LossSurface, draw_space, stand_in
from urna.forecast.votes import (
    AGREEMENTS,
    HELD,
    WIDE,
    WITHIN,
    Forecast,
    alternatives,
    clients_needed,
    draw_winners,
    exact_interval,
    forecast,
    thinned,
)

__all__ = [
    "AGREEMENTS",
    "HELD",
    "KINDS",
    "WIDE",
    "WITHIN",
    "Forecast",
    "LossSurface",
    "Openings",
    "alternatives",
    "clients_needed",
    "draw_space",
    "draw_winners",
    "exact_interval",
    "forecast",
    "forecast_openings",
    "stand_in",
    "thinned",
    "winner_beside",
]
