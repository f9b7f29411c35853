"""Code lists into ``bronze.codice_codes``, without Spark; a broken list costs that list."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ingest.errors import FileReadError, InputError
from ingest.genericode import CodeList, cited_as, read_code_list
from ingest.lake import Lake
from ingest.sources import ProbedFile, Source, find_sources

log = logging.getLogger("lakehouse")
TABLE = "codice_codes"
SEED_COLUMNS = ("list_id", "list_version", "cited_as", "list_uri", "code", "name_es", "name_en")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: ``loaded``, ``known`` or ``refused``."""

    source_file: str
    status: str
    list_id: str = ""
    version: str = ""
    codes: int = 0
    message: str = ""


@dataclass(frozen=True)
class _Found:
    """A file that was looked at: its list, or why it is none."""

    source: Source
    file_sha256: str
    content: CodeList | FileReadError


def load_catalogue(
    lake: Lake,
    inputs: Sequence[str],
    *,
    pipeline_version: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Outcome]:
    """Append the lists that are new. The caller holds the lake's lock.

    All lists of a call are one commit, so a load that was killed has loaded nothing. Content that
    is known is skipped under whatever name; a list that was refused is tried again, and told once.

    Args:
        lake: Where to.
        inputs: Folders, of which ``*.gc`` are read, files, globs and ZIPs.
        pipeline_version: For the record.
        now: The clock.

    Returns:
        One outcome per file, in a stable order.

    Raises:
        InputError: An input names nothing, or holds no list.
    """
    found = list(_look(inputs))
    lake.create_operations()
    known = set(lake.read("bronze", TABLE, ["file_sha256"]).column("file_sha256").to_pylist())
    loaded_at = now()
    load_id = f"{loaded_at:%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(3)}"
    outcomes: list[Outcome] = []
    rows: list[dict[str, object]] = []
    letters: dict[str, dict[str, object]] = {}
    for item in found:
        name, content = item.source.name, item.content
        if isinstance(content, FileReadError):
            letter = _letter(item, content, load_id, loaded_at, pipeline_version)
            letters[str(letter["failure_id"])] = letter
            outcomes.append(Outcome(name, "refused", message=str(letter["error_message"])))
            continue
        status = "known" if item.file_sha256 in known else "loaded"
        if status == "loaded":
            known.add(item.file_sha256)
            rows += _code_rows(item, content, load_id, loaded_at, pipeline_version)
        outcomes.append(Outcome(name, status, content.list_id, content.version, len(content.codes)))
    told = set(lake.read("bronze", "run_failures", ["failure_id"]).column("failure_id").to_pylist())
    lake.append("run_failures", [row for key, row in letters.items() if key not in told])
    lake.append(TABLE, rows)
    if letters:
        log.warning(
            "catalogue: %d code list(s) were refused, for example %s They lie in marts.dead_letters, "
            "stage catalogue, after the next run.",
            len(letters),
            next(iter(letters.values()))["error_message"],
        )
    return outcomes


def write_seed(
    inputs: Sequence[str], lists: Sequence[str], out: Path, *, table: Path | None = None
) -> dict[str, int]:
    """Write the seed of the lists that the project ships, sorted, so that a change is a small diff.

    Args:
        inputs: Where the ``.gc`` files are.
        lists: Which to take, as feeds cite them: ``ContractCode-2.08``.
        out: The CSV to write. An empty name is an empty cell.
        table: A tab-separated table ``list version code nombre``, for lists without a ``.gc`` file.

    Returns:
        Codes per list.

    Raises:
        InputError: A list is nowhere.
        FileReadError: A list that is asked for cannot be read.
    """
    rows: dict[str, list[tuple[str, ...]]] = {}
    for item in _look(inputs):
        if isinstance(item.content, FileReadError):
            if Path(item.source.file_name).stem in lists:
                raise item.content
            continue
        name = cited_as(item.content, item.source.file_name)
        rows[name] = [_seed_row(item.content, name, c.code, c.names) for c in item.content.codes]
    for name, codes in _tabled(table).items():
        rows.setdefault(name, codes)
    lacking = [name for name in lists if name not in rows]
    if lacking:
        raise InputError(
            f"{', '.join(lacking)} is in none of the files that were given, so the seed would lack "
            f"codes that are to be named. Give its .gc file, or take it off the lists."
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SEED_COLUMNS)
    for name in sorted(lists):
        writer.writerows(sorted(rows[name]))
    out.write_text(text.getvalue(), "utf-8")
    return {name: len(rows[name]) for name in sorted(lists)}


def _seed_row(content: CodeList, name: str, code: str, names: Mapping[str, str]) -> tuple[str, ...]:
    stated = (content.list_id, content.version, name, content.list_uri or "")
    return (*stated, code, names.get("es", ""), names.get("en", ""))


def _tabled(table: Path | None) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    if table is None:
        return found
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            name = f"{row['list']}-{row['version']}"
            values = (row["list"], row["version"], name, "", row["code"], row["nombre"], "")
            found.setdefault(name, []).append(values)
    return found


def _look(inputs: Sequence[str]) -> Iterator[_Found]:
    """Read every list that the inputs name. What is named itself is read whatever it is called."""
    named = {Path(text).absolute() for text in inputs if Path(text).is_file()}
    some = False
    for source in find_sources(inputs):
        if isinstance(source, ProbedFile):
            fault = FileReadError(str(source.error_type), str(source.error_message))
            some = True
            yield _Found(source.source, source.file_sha256, fault)
        elif source.file_name.lower().endswith(".gc") or (
            source.member is None and Path(source.path) in named
        ):
            some = True
            yield _read(source)
    if not some:
        raise InputError(
            f"{', '.join(inputs)} holds no code list: no file there ends in .gc. Name the folder of "
            f"the lists, or a file itself if it has another name."
        )


def _read(source: Source) -> _Found:
    # The name stands in for content that cannot be read: the same fault is told once.
    sha256 = hashlib.sha256(f"unread:{source.name}".encode()).hexdigest()
    try:
        data = source.read()
        sha256 = hashlib.sha256(data).hexdigest()
        return _Found(source, sha256, read_code_list(data, source.name))
    except FileReadError as error:
        return _Found(source, sha256, error)


def _code_rows(
    item: _Found, content: CodeList, load_id: str, loaded_at: datetime, pipeline_version: str
) -> Iterable[dict[str, object]]:
    for code in content.codes:
        yield {
            "list_id": content.list_id,
            "list_version": content.version,
            "cited_as": cited_as(content, item.source.file_name),
            "list_uri": content.list_uri,
            "canonical_uri": content.canonical_uri,
            "canonical_version_uri": content.canonical_version_uri,
            "code": code.code,
            "name_es": code.names.get("es"),
            "name_en": code.names.get("en"),
            "names": dict(code.names),
            "row_values": dict(code.row_values),
            "position": code.position,
            "source_file": item.source.name,
            "file_sha256": item.file_sha256,
            "load_id": load_id,
            "loaded_at": loaded_at,
            "pipeline_version": pipeline_version,
        }


def _letter(
    item: _Found, fault: FileReadError, load_id: str, failed_at: datetime, pipeline_version: str
) -> dict[str, object]:
    name = item.source.name
    return {
        "failure_id": hashlib.sha256(
            f"catalogue|{item.file_sha256}|{fault.error_type}".encode()
        ).hexdigest(),
        "run_id": load_id,
        "node": TABLE,
        "stage": "catalogue",
        "error_type": fault.error_type,
        "error_message": str(fault) if name in str(fault) else f"{name}: {fault}",
        "failed_at": failed_at,
        "pipeline_version": pipeline_version,
        "source_file": name,
        "file_sha256": item.file_sha256,
    }
