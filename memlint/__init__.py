"""A static and dynamic linter for memory anti-patterns in PyTorch code."""

__version__ = "0.1.0"
