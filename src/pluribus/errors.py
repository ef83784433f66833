"""Errors of Pluribus: one parent, and one child for each kind of mistake that a user can correct."""


class PluribusError(Exception):
    """Parent of all errors of Pluribus. Messages have the form: X must be …, got Y. Remedy."""


class SettingError(PluribusError, ValueError):
    """Raised for a setting that is unknown, out of range, or from a later version."""


class ConversionError(PluribusError):
    """Raised if a network cannot be converted as requested; nothing was changed."""


class UnreadableError(ConversionError):
    """Raised if `torch.export` cannot read the data flow of a network."""


class InputError(PluribusError, ValueError):
    """Raised if an input, an output or a target does not fit the network or the likelihood."""


class CheckpointError(PluribusError):
    """Raised if a saved ensemble or checkpoint is missing, damaged, foreign, or from a later version."""


class WriteError(PluribusError, OSError):
    """Raised if a file cannot be written: the disk is full or not writable. Earlier files are kept."""


class ExportError(PluribusError):
    """Raised if an ensemble cannot be exported as requested; no file is left behind."""
