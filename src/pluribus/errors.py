"""What Pluribus raises: one parent, and one child for each thing a user can mend."""


class PluribusError(Exception):
    """Parent of all errors of Pluribus. A message says what was expected, what came, and what to do."""


class SettingError(PluribusError, ValueError):
    """A setting of a method or likelihood is unknown, impossible, or from a later version."""


class ConversionError(PluribusError):
    """A network cannot be converted as asked; nothing was changed."""


class UnreadableError(ConversionError):
    """The data flow of a network cannot be read by `torch.export`."""


class InputError(PluribusError, ValueError):
    """An input, an output or a target does not fit the network or the likelihood."""


class CheckpointError(PluribusError):
    """A saved ensemble or checkpoint is missing, damaged, foreign, or from a later version."""


class WriteError(PluribusError, OSError):
    """A file cannot be written: the disk is full, or the place is not writable. Earlier files are kept."""
