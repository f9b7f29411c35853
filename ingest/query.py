"""SQL over a lake without Spark: DuckDB in memory, with a view for each Delta table, and for history."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ingest.errors import EnvironmentProblemError, InputError
from ingest.lake import is_table

_LOG = logging.getLogger(__name__)

Format = Literal["table", "csv", "json"]

# Where a bare table name is looked for, first to last: what people ask about comes first.
SCHEMA_ORDER = ("marts", "silver", "bronze")
PROMPT, CONTINUED = "lake> ", "  ... "
HELP = (
    "End a statement with ';'. .tables lists the tables, .help shows this, .quit leaves "
    "(so does Ctrl-D). Ctrl-C drops the statement that is typed or works."
)


@dataclass(frozen=True, order=True)
class LakeTable:
    """One Delta table of a lake.

    Attributes:
        schema: The folder above it, and its schema in SQL.
        name: Its folder's name, and its name in SQL.
        path: The folder.
    """

    schema: str
    name: str
    path: Path


# Opening a lake ----------------------------------------------------------------------------------


def lake_tables(lake: Path) -> list[LakeTable]:
    """Finds the tables of a lake.

    Args:
        lake: The folder of the lake.

    Returns:
        Every ``<lake>/<schema>/<table>`` that has a Delta log with a commit, sorted.

    Raises:
        InputError: There is no such folder, or no table in it.
    """
    if not lake.exists():
        raise InputError(
            f"{lake} is not there. Name a lake with LAKE= or --lake, or make one with 'make run'."
        )
    if not lake.is_dir():
        raise InputError(f"{lake} is a file, and a lake is a folder. Name the lake's folder.")
    logs = (log for log in lake.glob("*/*/_delta_log") if is_table(log.parent))
    found = sorted(LakeTable(log.parts[-3], log.parts[-2], log.parent) for log in logs)
    if not found:
        raise InputError(
            f"{lake} holds no Delta table at <schema>/<table>: it is empty, or no lake. Fill it "
            f"with 'make run LAKE={lake}', or name another with LAKE= or --lake."
        )
    return found


def connect(lake: Path, only: Collection[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Opens DuckDB in memory with a view for each table of a lake. Touches no network.

    The views stand in a schema each (``bronze.files``), and a bare name (``files``) is found too,
    in marts before silver before bronze. Bronze shows finished batches alone: what a killed or
    running batch wrote is there for nobody. ``history.<table>`` shows the children of every version of
    a record, where the table in Silver shows those of the current one.

    Args:
        lake: The folder of the lake. Nothing in it is ever written.
        only: The tables to make views for, as ``schema.table``; each costs some 20 ms. Batches
            are always among them, because views of Bronze ask them. None makes all, those of history
            among them.

    Returns:
        The connection.

    Raises:
        InputError: It is no lake, or its batches cannot be read. Any other table that cannot be
            read is logged as a warning and left out.
        EnvironmentProblemError: DuckDB's Delta extension is missing.
    """
    tables = [
        table
        for table in lake_tables(lake)
        if only is None
        or f"{table.schema}.{table.name}" in only
        or (table.schema, table.name) == _BATCHES
    ]
    absolute = str(lake.absolute())
    if "%" in absolute:
        # DuckDB's Delta reader decodes the path once too often, whatever form it is given.
        raise InputError(
            f"{absolute} has a '%' in it, which DuckDB's Delta reader takes for an escape. Rename "
            "or copy the lake: it works wherever it lies."
        )
    connection = duckdb.connect(
        config={
            # Nothing may be fetched: the extension comes with the installed packages.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    connection.execute(f"load {literal(str(_delta_extension()))}")
    connection.execute("set timezone = 'UTC'")
    for schema in dict.fromkeys(table.schema for table in tables):
        connection.execute(f"create schema if not exists {identifier(schema)}")
    # Batches come first: the other views of Bronze ask them.
    for table in sorted(tables, key=lambda item: ((item.schema, item.name) != _BATCHES, item)):
        _make_view(connection, table, tables)
    if only is None:
        _make_history(connection, tables)
    schemas = sorted(
        {table.schema for table in tables},
        key=lambda schema: (
            SCHEMA_ORDER.index(schema) if schema in SCHEMA_ORDER else len(SCHEMA_ORDER),
            schema,
        ),
    )
    path = ",".join(identifier(schema) for schema in schemas)
    connection.execute(f"set search_path = {literal(path)}")
    return connection


_BATCHES = ("bronze", "batches")
# What speaks of tables without naming one, or of those of history, which read others than they name.
_CATALOG = re.compile(
    r"\b(?:show|pragma|information_schema|duckdb_|pg_|sqlite_|history\b)|\bdescribe\W*$", re.I
)


def tables_named(lake: Path, sql: str) -> set[str] | None:
    """Finds the tables that SQL may read, for the argument ``only`` of ``connect``.

    Args:
        lake: The folder of the lake.
        sql: The statements.

    Returns:
        Every table whose name occurs in it as a word, as ``schema.table``; None for all, where it
        names none or asks for the catalog. A name that SQL puts together is not found.

    Raises:
        InputError: It is no lake.
    """
    words = set(re.findall(r"\w+", sql.casefold()))
    named = {
        f"{table.schema}.{table.name}"
        for table in lake_tables(lake)
        if set(re.findall(r"\w+", table.name.casefold())) <= words
    }
    return None if _CATALOG.search(sql) else named or None


def _make_view(
    connection: duckdb.DuckDBPyConnection, table: LakeTable, tables: Sequence[LakeTable]
) -> None:
    view = f"{identifier(table.schema)}.{identifier(table.name)}"
    is_batches = (table.schema, table.name) == _BATCHES
    scan = f"select * from delta_scan({literal(str(table.path.absolute()))})"
    try:
        columns = {row[0] for row in connection.execute(f"describe {scan}").fetchall()}
        batch = _batch_column(table, columns)
        if batch is not None:
            finished = "select batch_id from bronze.batches where status = 'finished'"
            has_batches = any((other.schema, other.name) == _BATCHES for other in tables)
            # No table of batches: the first one never finished.
            scan += f" where {batch} in ({finished})" if has_batches else " where false"
        connection.execute(f"create view {view} as {scan}")
    except duckdb.Error as error:
        trouble = (
            f"{table.path} cannot be read as a Delta table: {_first_line(error)}. If a run is "
            "writing it, try again; else look at its _delta_log."
        )
        if is_batches:
            raise InputError(trouble) from error
        # One broken table costs that table; the others can still be asked.
        _LOG.warning(trouble)


def _make_history(connection: duckdb.DuckDBPyConnection, tables: Sequence[LakeTable]) -> None:
    from ingest.query_history import SCHEMA, create_history_views

    if any(table.schema == SCHEMA for table in tables):
        return  # A lake may have a schema of that name itself.
    try:
        create_history_views(connection, [table.name for table in tables if table.schema == "silver"])
    except duckdb.Error as error:
        _LOG.warning(
            f"The views of history cannot be made: {_first_line(error)}. A table that they read is not "
            "as it should be; run again, and it is built."
        )


def _batch_column(table: LakeTable, columns: set[str]) -> str | None:
    """Names the column that says which batch wrote a row of Bronze, if there is one."""
    if table.schema != "bronze" or (table.schema, table.name) == _BATCHES:
        return None
    if "_batch_id" in columns:
        return "_batch_id"
    return "batch_id" if table.name == "files" and "batch_id" in columns else None


def _delta_extension() -> Path:
    """Finds the Delta extension in the package that carries it."""
    spec = importlib.util.find_spec("duckdb_extension_delta")
    places = (spec.submodule_search_locations or []) if spec else []
    version = f"v{duckdb.__version__}"
    for place in places:
        # DuckDB loads only an extension that was built for its own version.
        file = Path(place) / "extensions" / version / "delta.duckdb_extension"
        if file.is_file():
            return file
    raise EnvironmentProblemError(
        f"DuckDB's Delta extension for {version} is not installed. Run 'make setup'."
    )


def literal(text: str) -> str:
    """A text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Iterable[str]) -> str:
    """Texts as a list literal of DuckDB's SQL. A list as a parameter makes DuckDB import pandas."""
    return f"[{', '.join(map(literal, texts))}]::text[]"


def identifier(text: str) -> str:
    """A name as an identifier of DuckDB's SQL, whatever is in it."""
    return '"' + text.replace('"', '""') + '"'


def _first_line(error: BaseException) -> str:
    """What DuckDB says, without the drawing of where."""
    return str(error).strip().split("\n\n")[0].splitlines()[0].rstrip(".")


# Asking ------------------------------------------------------------------------------------------


def run_query(lake: Path, sql: str, fmt: Format = "table") -> str:
    """Runs one or more statements over a lake, and gives the result of the last.

    Args:
        lake: The folder of the lake.
        sql: The statements.
        fmt: ``table`` for people, ``csv`` with a header, or ``json``, an array of objects.

    Returns:
        The result as text, without a final newline.

    Raises:
        InputError: It is no lake, or the SQL is wrong.
    """
    named = tables_named(lake, sql)
    if named is not None:
        # Where it fails, the answer to that may lie in another table: a name that was put together,
        # or one that was meant.
        with connect(lake, named) as connection, suppress(InputError):
            return _ask(connection, sql, fmt)
    with connect(lake) as connection:
        return _ask(connection, sql, fmt)


def _ask(connection: duckdb.DuckDBPyConnection, sql: str, fmt: Format) -> str:
    try:
        if not connection.extract_statements(sql):
            raise InputError("There is no SQL statement. Try: select * from dead_letter_summary")
        result = connection.execute(sql)
        if result.description is None:
            return ""
        names = [str(column[0]) for column in result.description]
        rows = result.fetchall()
    except duckdb.Error as error:
        raise InputError(f"{explain(error)}. Correct the SQL and try again.") from error
    except RuntimeError as error:
        # Ctrl-C while it worked, which DuckDB tells in its own way. Its threads work on until they are
        # told too, and the connection would wait for them when it is closed.
        if isinstance(error.__cause__, KeyboardInterrupt):
            connection.interrupt()
            raise KeyboardInterrupt from error
        raise
    return render(names, rows, fmt)


def render(names: Sequence[str], rows: Sequence[Sequence[Any]], fmt: Format) -> str:
    """Writes rows for people or programs.

    Args:
        names: The columns' names.
        rows: Values in that order.
        fmt: ``table``, where control characters are escaped; ``csv`` with a header; or ``json``.

    Returns:
        The text, without a final newline.
    """
    if fmt == "csv":
        return _as_csv(names, rows)
    if fmt == "json":
        return _as_json(names, rows)
    return _as_table(names, rows)


def explain(error: duckdb.Error) -> str:
    """One line: what is wrong, where, and what DuckDB thinks was meant."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    drawn = next((at for at, line in enumerate(lines) if re.match(r"LINE \d+:", line)), len(lines))
    place = f" (in: {lines[drawn].split(':', 1)[1].strip()})" if drawn < len(lines) else ""
    return " ".join(lines[:drawn]).rstrip(".") + place


def _as_csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_field(value) for value in row] for row in rows)
    return text.getvalue().rstrip("\n")


def _as_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    # A JSON object has each key once; a join may give a name twice.
    keys, seen = [], Counter[str]()
    for name in names:
        seen[name] += 1
        keys.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    found = [dict(zip(keys, map(json_value, row), strict=True)) for row in rows]
    return json.dumps(found, ensure_ascii=False, indent=2)


def _as_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(names):
        numeric = any(type(row[at]) in (int, float) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row))
    text = io.StringIO()
    console = Console(file=text, color_system=None, width=_width())
    console.print(table)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    return "\n".join([*(line for line in lines if line), count])


def _width() -> int:
    """The terminal's width, or one that never folds when the output goes elsewhere."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else 10_000


def _field(value: Any) -> Any:
    """A value as one field: lists and structs as JSON, truth as JSON says it."""
    if isinstance(value, list | tuple | dict | bool):
        return json.dumps(json_value(value), ensure_ascii=False)
    return json_value(value) if isinstance(value, bytes | bytearray) else value


def _shown(value: Any) -> Text:
    """A value on a terminal."""
    # Text, not str: rich would read brackets in a value as its own mark-up.
    return Text("" if value is None else terminal_safe(str(_field(value))))


# Control characters but tab and newline; what turns the direction of writing, so that a text reads
# as another; and halves of a character, which no terminal takes.
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def terminal_safe(text: str) -> str:
    """A text as a terminal shows it: what a terminal would obey is escaped.

    Dirty feeds hold control characters. Tabs and newlines stay.
    """
    return _OBEYED.sub(
        lambda bad: f"\\x{ord(bad[0]):02x}" if ord(bad[0]) < 256 else f"\\u{ord(bad[0]):04x}", text
    )


def json_value(value: Any) -> Any:
    """A value as JSON has it. What JSON has no form for becomes text: decimals stay exact."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return "0x" + value.hex()
    if value is None or isinstance(value, str | bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


# Asking again and again --------------------------------------------------------------------------


def shell(lake: Path) -> None:
    """Reads statements at a prompt and prints their results, until ``.quit`` or end of input.

    Args:
        lake: The folder of the lake.

    Raises:
        InputError: It is no lake. A wrong statement is told and asked again.
    """
    with connect(lake) as connection:
        names = [f"{table.schema}.{table.name}" for table in lake_tables(lake)]
        if sys.stdin.isatty():
            _say(f"{lake}: {len(names)} tables. {HELP}")
        names += _history_names(connection)
        if sys.stdin.isatty():
            _prepare_readline(names)
        pending = ""
        while True:
            try:
                line = _read(CONTINUED if pending else PROMPT)
            except KeyboardInterrupt:
                pending = ""
                _say("")
                continue
            if line is None:
                if pending.strip():
                    _answer(connection, pending)
                return
            command = line.strip()
            if not pending and command.startswith("."):
                if command in (".quit", ".exit"):
                    return
                _say(_dot(command, names))
                continue
            pending = f"{pending}{line}\n" if pending or command else ""
            if _is_whole(pending):
                _answer(connection, pending)
                pending = ""


def _read(prompt: str) -> str | None:
    """One line of input, or None when it ends. A prompt is for people alone."""
    try:
        return input(prompt if sys.stdin.isatty() else "")
    except EOFError:
        if sys.stdin.isatty():
            _say("")
        return None


def _is_whole(text: str) -> bool:
    """Whether a statement has come to its end: a last ``;`` that is in no text and no comment."""
    tokens = duckdb.tokenize(text)
    # The tokenizer leaves comments out, and all that follows a quote that is still open. It
    # counts in bytes.
    return bool(tokens) and text.encode()[tokens[-1][0] :][:1] == b";"


def _answer(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    try:
        _say(_ask(connection, sql, "table"))
    except InputError as error:
        _say(str(error))
    except KeyboardInterrupt:
        _say("Stopped.")


def _history_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    asked = "select view_name from duckdb_views() where schema_name = 'history' order by 1"
    return [f"history.{name}" for (name,) in connection.execute(asked).fetchall()]


def _dot(command: str, names: Sequence[str]) -> str:
    if command == ".tables":
        return "\n".join(names)
    if command == ".help":
        return HELP
    return f"{command} is unknown. {HELP}"


def _prepare_readline(tables: Sequence[str]) -> None:
    """Gives the prompt a history that lasts and completion of table names, where there is one."""
    with suppress(ImportError, OSError):
        import atexit
        import readline

        history = Path.home() / ".lakehouse_history"
        if history.is_file():
            readline.read_history_file(history)
        readline.set_history_length(1_000)
        atexit.register(_save_history, history)
        names = sorted({*tables, *(name.partition(".")[2] for name in tables)})
        readline.set_completer(
            lambda text, state: [*(n for n in names if n.startswith(text)), None][state]
        )
        readline.set_completer_delims(" \t\n,();=")
        readline.parse_and_bind("tab: complete")


def _save_history(path: Path) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(path)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
