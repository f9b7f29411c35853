"""A folder as a streaming source of Spark that tells when something in it changed, and nothing else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from ingest.errors import InputError, StreamError
from ingest.sources import find_files

Offset = dict[str, str]


class LandingSource(DataSource):
    """The streaming source ``landing``.

    Options:
        inputs: JSON list of folders, files or globs, as ``find_files`` takes them.
        start: A text that differs between any two starts of a stream.
        every: Seconds after which there is a batch also where nothing changed; 0 for never.
    """

    @classmethod
    def name(cls) -> str:
        """By which ``readStream.format`` finds it."""
        return "landing"

    def schema(self) -> str:
        """A source must have a column; no row ever comes."""
        return "nothing STRING"

    def streamReader(self, schema: StructType) -> LandingReader:  # noqa: N802 (Spark's name)
        """Make what Spark asks for offsets."""
        every = int(self.options.get("every", "0"))
        return LandingReader(json.loads(self.options["inputs"]), self.options["start"], every)


class LandingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offset is the folder's state: another state, another batch.

    The start is part of it, so that the first batch of a start is never spared: what an earlier one
    did not bring to its end is done although nobody touched the folder.
    """

    def __init__(self, inputs: Sequence[str], start: str, every: int = 0) -> None:
        self._inputs = inputs
        self._start = start
        self._every = every
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """Before the first start."""
        return {"start": "", "listing": ""}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """What comes after this is for the next start."""
        self._target = self._now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 (Spark's name)
        """The folder's state."""
        return self._target or self._now()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Nothing to read."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Nothing to read."""
        return iter(())

    def _now(self) -> Offset:
        now = {"start": self._start, "listing": listing(self._inputs)}
        if self._every:
            now["tick"] = str(int(time.monotonic()) // self._every)
        return now


def landing_stream(
    spark: SparkSession,
    inputs: Sequence[str],
    wake: Callable[[DataFrame, int], None],
    checkpoint: Path,
    *,
    every: int = 0,
) -> DataStreamWriter:
    """A stream that wakes when something in its inputs changed, for its caller to trigger and start.

    Args:
        spark: The session.
        inputs: Folders, files or globs.
        wake: Called with each batch, which is empty.
        checkpoint: Folder of the stream's checkpoint.
        every: Seconds after which there is a batch also where nothing changed; 0 for never.
    """
    spark.dataSource.register(LandingSource)
    source = (
        spark.readStream.format(LandingSource.name())
        .option("inputs", json.dumps(list(inputs)))
        .option("start", datetime.now(UTC).isoformat())
        .option("every", str(every))
        .load()
    )
    return source.writeStream.foreachBatch(wake).option("checkpointLocation", str(checkpoint))


def stream_ended(inputs: Sequence[str], checkpoint: Path, error: Exception) -> StreamError:
    """The error of a ``landing_stream`` that ended by itself, and how to go on."""
    return StreamError(
        f"The stream over {', '.join(inputs)} ended: {error}. The lake decides what is new, not the "
        f"stream's checkpoint: if the fault stays, remove {checkpoint} and start again; nothing is lost "
        f"or doubled by that."
    )


def listing(inputs: Sequence[str]) -> str:
    """Hash the state of files from what the file system says of them; their content is not read.

    The instant of the last change of any kind (ctime) is part of it: no program can set it back.

    Args:
        inputs: Folders, files or globs.
    """
    digest = hashlib.sha256()
    try:
        for path in find_files(inputs):
            try:
                stat = path.stat()
            except OSError:
                # Gone since it was found, or not to be reached: the ingest says so.
                state: tuple[int, ...] = ()
            else:
                state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
            digest.update(repr((str(path), state)).encode("utf-8", "surrogatepass"))
    except InputError:
        # The ingest that is woken by this says which input names nothing.
        return "nothing"
    return digest.hexdigest()
