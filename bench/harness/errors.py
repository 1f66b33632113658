"""Errors that the user can do something about: printed as they are, without a traceback."""


class BenchError(Exception):
    """The message says what is wrong and, where we know it, what to do."""


class MeasurementError(BenchError):
    """One measurement is void; the others go on."""
