"""The addresses of the two network namespaces that a measurement joins."""

from __future__ import annotations

ADDRESSES = ("10.99.0.1", "10.99.0.2")
