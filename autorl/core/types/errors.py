"""The errors a caller may want to catch."""

from __future__ import annotations


class AutorlError(Exception):
    """Root of the errors a caller may want to catch: `InputError`, `StudyError`."""


class InputError(AutorlError):
    """The user's input is wrong.

    One line: file, key (and line), what is wrong, what is allowed. Exit code 2.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        key: str | None = None,
        line: int | None = None,
    ) -> None:
        self.message = message
        self.file = file
        self.key = key
        self.line = line
        super().__init__(message)

    def in_file(self, file: str | None) -> InputError:
        """Return the same error with a file, where it names none."""
        return InputError(self.message, file=self.file or file, key=self.key, line=self.line)

    def __str__(self) -> str:
        where = self.file or ""
        if self.line is not None:
            where += f":{self.line}" if where else f"line {self.line}"
        parts = [part for part in (where, self.key, self.message) if part]
        return ": ".join(parts)


class CheckpointError(InputError):
    """A checkpoint cannot be gone on from.

    A file of it is torn, not whole, or holds more than data.
    """


class NotLoggedError(AutorlError):
    """A run trained to its end and never logged a metric.

    The script is at fault, whatever its configuration.
    """


class StudyError(AutorlError):
    """A study ended without a result, or its folder cannot be used.

    Exit code 1.
    """


class StorageError(StudyError):
    """A disk or a storage cannot be read or written.

    No configuration is at fault: a segment that meets it is lost, and tried again.
    """
