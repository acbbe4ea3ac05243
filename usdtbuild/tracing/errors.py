"""What can go wrong while tracing, beyond wrong input."""

from __future__ import annotations

from ..errors import UsdtError


class TracerError(UsdtError):
    """A tracer doesn't do its work here; the message says what happened and what helps."""
