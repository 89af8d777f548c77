"""Reads the vectors of the conformance kit."""

import json
from pathlib import Path
from typing import Any

_DIR = Path(__file__).parents[3] / "conformance" / "vectors"


def vectors(name: str, table: str) -> list[Any]:
    """Returns the cases of a table, each with a place for messages."""
    cases = json.loads((_DIR / f"{name}.json").read_text())[table]
    assert cases, f"{name}.json has no {table}"
    return list(cases)


def wire(text: str) -> bytes:
    """Returns bytes that are written as ISO 8859-1."""
    return text.encode("latin-1")
