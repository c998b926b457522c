"""Cryptographic protocols as pure stages. Nothing here uses a network or a clock."""

__all__: list[str] = []
