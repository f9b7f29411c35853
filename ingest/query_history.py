"""Views for DuckDB on what every version of a record held many of, superseded ones among them.

The tables of children show the versions that are shown. The arrays from which they derive keep all
versions, so their history is a query and no table more; `child_history` in macros/children.sql is the
same for Spark.
"""

from __future__ import annotations

from collections.abc import Collection

import duckdb
from duckdb.sqltypes import DuckDBPyType

from ingest.query import identifier

SCHEMA = "history"
_CHILDREN, _DISPOSITIONS, _CODES = "_children", "_dispositions", "codice_codes"

# A code's name in the version of its list that is cited, or else in the newest; as
# macros/catalogue_names.sql has it.
_NAMES = """
  select code_key, max(code_name) as code_name
  from (
    select cited_as || '|' || code as code_key, code_name from silver.codice_codes
    union all
    select list_id || '|' || code, code_name from silver.codice_codes where is_newest_version
  )
  where code_key is not null and code_name is not null
  group by code_key
"""


def create_history_views(connection: duckdb.DuckDBPyConnection, silver: Collection[str]) -> list[str]:
    """Makes a view ``history.<table>`` for each table of children: its columns and ``is_superseded``.

    Each version of a record is there once, with the children that no rule refused: what is current,
    superseded or withdrawn, and no exact repeat.

    Args:
        connection: Where views of the lake's tables are.
        silver: The names of those in ``silver``.

    Returns:
        The names of the views, sorted. None where the lake has no arrays of children yet, or not what
        they are read with.

    Raises:
        duckdb.Error: A table cannot be read.
    """
    made = []
    for children in sorted(name for name in silver if name.endswith(_CHILDREN)):
        dispositions = children.removesuffix(_CHILDREN) + _DISPOSITIONS
        if not {dispositions, _CODES} <= set(silver):
            continue
        relation = connection.sql(f"select * from silver.{identifier(children)} limit 0")
        types = dict(zip(relation.columns, relation.types, strict=True))
        tables = {name: row for name, kind in types.items() if (row := _row_type(kind)) is not None}
        # As the tables have them: the key, the version, the record.
        lineage = sorted(
            (name for name in types if name not in tables and not name.startswith("_")),
            key=lambda name: name == "record_id",
        )
        connection.execute(f"create schema if not exists {SCHEMA}")
        for table, fields in tables.items():
            connection.execute(
                f"create view {SCHEMA}.{identifier(table)} as "
                + _history(children, dispositions, table, lineage, fields)
            )
            made.append(table)
    return sorted(made)


def _row_type(kind: DuckDBPyType) -> list[str] | None:
    """The fields of a child, if a column of this type is an array of judged children."""
    row = _parts(_parts(kind, "list").get("child"), "struct").get("row")
    return list(_parts(row, "struct")) or None


def _parts(kind: object, name: str) -> dict[str, object]:
    """What a type of that name is made of; nothing, if it is another."""
    if not isinstance(kind, DuckDBPyType) or kind.id != name:
        return {}
    return {str(part): of for part, of in kind.children}


def _history(children: str, dispositions: str, table: str, lineage: list[str], fields: list[str]) -> str:
    """The query of one view."""
    codes = [name for name in fields if f"{name}_list_uri" in fields]
    columns = [f"child.{identifier(name)}" for name in lineage]
    columns += [f'child.child."row".{identifier(name)}' for name in fields]
    joins = []
    for at, code in enumerate(codes):
        uri, value = (f'child.child."row".{identifier(name)}' for name in (f"{code}_list_uri", code))
        for kind, pattern in (("cited", "([^/]+)[.]gc$"), ("newest", "([^/]+)-[^-/]+[.]gc$")):
            joins.append(
                f"left join names as {kind}_{at} on {kind}_{at}.code_key = "
                f"regexp_extract({uri}, '{pattern}', 1) || '|' || {value}"
            )
        columns.append(
            f"coalesce(cited_{at}.code_name, newest_{at}.code_name) as {identifier(f'{code}_name')}"
        )
    inner = ", ".join(f"record.{identifier(name)}" for name in lineage)
    return f"""
with names as ({_NAMES}),
children as (
  select {inner}, record._verdict_contract, decision._decided_at,
    decision.disposition = 'superseded' as is_superseded,
    unnest(record.{identifier(table)}) as child
  from silver.{identifier(children)} as record
  join silver.{identifier(dispositions)} as decision on record.record_id = decision._record_id
  where decision.disposition in ('current', 'superseded', 'withdrawn')
)
select {", ".join(columns)}, child.child.warnings, child._verdict_contract, child.is_superseded,
  child._decided_at
from children as child
{" ".join(joins)}
where len(child.child.failure_reasons) = 0
"""
