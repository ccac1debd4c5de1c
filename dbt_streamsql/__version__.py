from __future__ import annotations

version = "0.2.0"
