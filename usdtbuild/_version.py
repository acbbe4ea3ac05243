"""The one place that holds the version; the build backend and the launcher's hot path both read it."""

__version__ = "0.2.0"
