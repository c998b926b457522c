"""The four systems. Each is one use of a private sum, and none imports another."""

__all__: list[str] = []
