"""The one exception tree: every error says what is wrong, why, and how to go on."""

from __future__ import annotations


class LakehouseError(Exception):
    """Anything a user can mend. The command line prints it as one line and exits with 2."""

    exit_code = 2


class EnvironmentProblemError(LakehouseError):
    """The machine lacks something: Java, disk space, the network at first set-up, a jar."""


class LakeInUseError(LakehouseError):
    """Another process is writing to the lake."""


class ContractError(LakehouseError):
    """A contract cannot work. The message names the record type, the rule and the line."""


class InputError(LakehouseError):
    """What was given to read is not there, or cannot be what was asked for."""


class TransitionError(LakehouseError):
    """A refused record is in a state in which what was asked cannot be done.

    Attributes:
        record_id: The record.
    """

    def __init__(self, record_id: str, message: str) -> None:
        super().__init__(message)
        self.record_id = record_id


class ConflictError(LakehouseError):
    """Somebody else worked on the same record meanwhile. The message says who did what when."""


class FetchError(LakehouseError):
    """A published file cannot be had, or is not what it should be."""


class StreamError(LakehouseError):
    """The stream that wakes the ingest cannot run."""


class KafkaError(LakehouseError):
    """A topic of Kafka cannot be read: no broker, no topic, or what was not read yet is gone."""


class FileReadError(LakehouseError):
    """One file cannot be read as what its contract says.

    It costs that file and nothing else: the ingest turns it into a row of ``bronze.files`` with
    status ``failed``.

    Attributes:
        error_type: A stable UPPER_SNAKE name of the fault, for example ``EMPTY_FILE``.
    """

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class DeliveryError(LakehouseError):
    """A receiver of alerts did not take one."""
