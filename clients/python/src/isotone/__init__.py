"""Timestamps in one order, and unique IDs, from an Isotone cluster.

>>> async with isotone.Client("10.0.0.1:8080", "10.0.0.2:8080") as client:
...     timestamp = await client.timestamp()

:mod:`isotone.sync` has the same for threads.
"""

from . import errors, snowflake, sync
from .client import Client, Credentials, Hooks, Options
from .clock import Clock, Interval
from .errors import Error
from .generator import Generator, GeneratorOptions
from .snowflake import Layout
from .timestamps import Range, Range64, Timestamp, Timestamp64

__version__ = "0.1.0"
__all__ = [
    "Client",
    "Clock",
    "Credentials",
    "Error",
    "Generator",
    "GeneratorOptions",
    "Hooks",
    "Interval",
    "Layout",
    "Options",
    "Range",
    "Range64",
    "Timestamp",
    "Timestamp64",
    "errors",
    "snowflake",
    "sync",
]
