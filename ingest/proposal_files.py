"""Writing a proposed contract and its models as files of the dbt project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ingest.errors import InputError
from ingest.proposal import Column, Proposal, Rule

# Columns of each table beside those of the contract, with the docs block that says what they mean.
# tests/house compares them with what the macros make.
_EVIDENCE = {
    "_corrupt_record": "string",
    "_parse_error": "struct<error_class:string,message:string,line:int,column:int>",
    "payload": "string",
    "_payload_bytes": "binary",
    "_payload_sha256": "string",
    "_record_id": "string",
    "_position": "int",
    "_byte_offset": "bigint",
    "_byte_length": "bigint",
    "_encoding": "string",
    "_source_file": "string",
    "_file_sha256": "string",
    "_dataset": "string",
    "_batch_id": "string",
    "_ingested_at": "timestamp",
    "_read_contract": "string",
    "_pipeline_version": "string",
    "_supersedes": "string",
    "_attempt": "int",
    "_unparsed": "array<string>",
}
_LINEAGE = (
    *("_record_id", "_dataset", "_source_file", "_file_sha256", "_position", "_batch_id"),
    *("_ingested_at", "_read_contract", "_pipeline_version", "_supersedes", "_attempt"),
)
_JUDGED = ("_payload_sha256", "_unparsed", "_parse_error")
_VERDICT = (
    "_misfits",
    "failure_reasons",
    "warnings",
    "_verdict_contract",
    "_verdict_pass",
    "_judged_at",
)
_REFUSED = (
    *("_parse_error", "reason", "failure_reasons", "warnings", "_misfits", "is_dropped"),
    *("detected_at", "_verdict_contract", "_judged_at", "payload"),
)
_DECIDED = ("disposition", "by_record_id", "_verdict_contract", "_decided_at")
_SHOWN = ("warnings", "_source_file", "_position", "_batch_id", "_verdict_contract", "_decided_at")
_RECORD_TYPES = re.compile(r"^  record_types:[^\n]*\n", re.MULTILINE)


def write(proposal: Proposal, project: Path) -> list[Path]:
    """Write a contract and its models into a dbt project, and name them in its record types.

    Args:
        proposal: What to write.
        project: The folder of ``dbt_project.yml``.

    Returns:
        What was written, the contract first.

    Raises:
        InputError: A file of these names is there already, or the project has no record types.
    """
    texts = {project / name: text for name, text in render(proposal).items()}
    for path in texts:
        if path.exists():
            raise InputError(
                f"{path} is there already and may hold somebody's work. Nothing was written. Take "
                f"another name, or move the file away."
            )
    settings = project / "dbt_project.yml"
    text = settings.read_text("utf-8")
    found = _RECORD_TYPES.search(text)
    if not found:
        raise InputError(
            f"{settings} has no 'record_types' under vars, where each record type is named. Nothing "
            f"was written. Add it, as docs/contracts.md and README.md say."
        )
    name = proposal.name
    entry = f"    {name}:\n      {name}: [current]\n"
    for path, content in texts.items():
        path.write_text(content, "utf-8")
    settings.write_text(text[: found.end()] + entry + text[found.end() :], "utf-8")
    return [*texts, settings]


def render(proposal: Proposal) -> dict[str, str]:
    """The files of a proposal, by their path in the dbt project."""
    name = proposal.name
    return {
        f"models/bronze/{name}.yml": "\n".join(_contract(proposal)) + "\n",
        f"models/bronze/stg_{name}.sql": _staged(name),
        f"models/silver/{name}.yml": "\n".join(_descriptions(proposal)) + "\n",
        f"models/silver/{name}_judged.sql": (
            f"{{{{ config(incremental_strategy='append') }}}}\n{{{{ judge('{name}') }}}}\n"
        ),
        f"models/silver/{name}_dispositions.sql": (
            f"{_config('_record_id', name)}{{{{ dispositions('{name}') }}}}\n"
        ),
        f"models/silver/{name}_quarantine.sql": (
            f"{{{{ config(incremental_strategy='append', meta={{'verdicts_of': ['{name}']}}) }}}}\n"
            f"{{{{ quarantine('{name}') }}}}\n"
        ),
        f"models/silver/{name}.sql": _current(proposal),
    }


def _text(value: str) -> str:
    """A text as YAML that means just this text."""
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    """A text on one line, so that it stays a comment; braces would be Jinja to dbt."""
    plain = " ".join(text.split())
    return "# " + "".join(c if c.isprintable() else "?" for c in plain).replace("{", "(").replace(
        "}", ")"
    )


def _contract(proposal: Proposal) -> Iterator[str]:
    name, fmt = proposal.name, proposal.fmt
    yield "version: 2"
    yield ""
    yield _comment(
        f"Proposed from {proposal.sample}, {proposal.records:,} records. Numbers count in it."
    )
    for finding in proposal.findings:
        yield _comment(finding)
    yield "# Edit it: docs/contracts.md explains every key. Delete what is settled."
    yield "sources:"
    yield "  - name: bronze"
    yield (
        "    description: Files as they were read, append-only, every field a string. Written by "
        "ingest, never by dbt."
    )
    yield "    schema: bronze"
    yield "    tables:"
    yield f"      - name: {name}"
    yield f"        description: One row per record of a {name} file as read, every field a string."
    yield "        config:"
    yield "          meta:"
    yield "            contract:"
    pad = " " * 14
    yield f"{pad}version: 0.1.0"
    yield f"{pad}owner: {_text(proposal.owner)}"
    yield f"{pad}format: csv"
    yield f"{pad}schema: {', '.join(f'{c.name} STRING' for c in proposal.columns)}"
    yield f"{pad}feed:"
    prefix = proposal.prefix.lower()
    yield f"{pad}  files: [{_text(prefix + '*.csv')}, {_text(prefix + '*.csv.gz')}]"
    yield f"{pad}  delimiter: {_text(fmt.delimiter)}"
    yield f"{pad}  quote: {_text(fmt.quote)}"
    yield f"{pad}  header: {str(fmt.header).lower()}"
    if fmt.encoding:
        yield f"{pad}  {_comment('Guessed: ' + proposal.encoding.evidence)}"
        yield f"{pad}  encoding: {fmt.encoding}"
    if fmt.aliases:
        yield f"{pad}  aliases:"
        for old, new in fmt.aliases.items():
            yield f"{pad}    {_text(old)}: {new}"
    yield f"{pad}  datasets:"
    yield f"{pad}    - {{name: {name}, prefix: {_text(prefix)}}}"
    yield f"{pad}{_comment(proposal.key_evidence)}"
    yield f"{pad}key: [{', '.join(proposal.key)}]"
    if proposal.order_by == "_ingested_at":
        yield f"{pad}# No column is a time: of one key the record that was read last is current."
    yield f"{pad}order_by: {proposal.order_by}"
    yield f"{pad}fields:"
    for column in proposal.columns:
        yield f"{pad}  {_comment(_facts(column))}"
        for evidence in column.against:
            yield f"{pad}  {_comment('  ' + str(evidence))}"
        terms = "".join(f", {key}: {json.dumps(value)}" for key, value in column.type.terms.items())
        kind = _text(column.type.name) if "(" in column.type.name else column.type.name
        yield f"{pad}  - {{name: {column.name}, from: {column.name}, type: {kind}{terms}}}"
    yield f"{pad}rules:"
    for rule in proposal.rules:
        yield from _rule(rule, pad)
    yield "        columns:"
    for column in proposal.columns:
        yield f"          - name: {column.name}"
        yield "            data_type: string"
        yield f"            description: {_text(_meaning(column))}"
        if column.pii:
            yield f"            {_comment('Perhaps personal: ' + column.pii_evidence)}"
            yield f"            config: {{meta: {{pii: {{kind: {column.pii}, mask: hash}}}}}}"
    for key, data_type in _EVIDENCE.items():
        yield f"          - name: {key}"
        yield f"            data_type: {data_type}"
        yield f"            description: {_quoted(key)}"
    yield ""
    yield "models:"
    yield f"  - name: stg_{name}"
    yield f"    description: One row per {name} record of a finished batch."
    yield "    columns:"
    yield from _columns([*proposal.columns, *_EVIDENCE])


def _facts(column: Column) -> str:
    total = column.values + column.nulls
    share = f"{column.nulls / total:.1%}"
    return f"{column.name}: {column.nulls:,} of {total:,} empty ({share}), {column.distinct:,} different"


def _rule(rule: Rule, pad: str) -> Iterator[str]:
    yield f"{pad}  {_comment(str(rule.evidence))}"
    yield f"{pad}  - code: {rule.code}"
    if rule.is_misfit:
        yield f"{pad}    misfit: {rule.fault}"
    else:
        yield f"{pad}    when: {_text(rule.fault)}"
    if rule.stops:
        yield f"{pad}    stops: true"
    for key in ("severity", "on_null", "stage", "reason", "why", "fix"):
        value = getattr(rule, key)
        yield f"{pad}    {key}: {_text(value) if key in ('why', 'fix') else value}"
    yield f"{pad}    since: 0.1.0"


def _meaning(column: Column) -> str:
    return f"The column {column.header or column.name} of the file; say what it means."


def _quoted(column: str) -> str:
    """The docs block of a column that every record type has."""
    block = column.removeprefix("_")
    return f"'{{{{ doc(\"{block}\") }}}}'"


def _columns(columns: Iterable[Column | str]) -> Iterator[str]:
    for column in columns:
        if isinstance(column, str):
            name, description = column, _quoted(column)
        else:
            name, description = column.name, _text(_meaning(column))
        yield f"      - name: {name}"
        yield f"        description: {description}"


def _descriptions(proposal: Proposal) -> Iterator[str]:
    name, fields = proposal.name, proposal.columns
    by_name: Mapping[str, Column] = {column.name: column for column in fields}
    identity = [by_name[key] for key in proposal.key]
    order: list[Column | str] = [by_name.get(proposal.order_by, proposal.order_by)]
    tables: dict[str, tuple[str, list[Column | str]]] = {
        f"{name}_judged": (
            f"One row per {name} record and verdict: every Bronze record with its fields typed and the "
            f"one verdict that all else derives from.",
            [*_LINEAGE, *_JUDGED, *fields, *_VERDICT],
        ),
        f"{name}_quarantine": (
            f"One row per refused {name} record: payload, typed fields, lineage and the reasons. It may "
            f"hold personal data.",
            [*_LINEAGE, *fields, *_REFUSED],
        ),
        f"{name}_dispositions": (
            f"One row per accepted {name} record: what became of it, and which record caused that.",
            ["_record_id", "_dataset", "_batch_id", *identity, *order, *_DECIDED],
        ),
        name: (
            f"One row per key of {name}: its current record, the newest by {proposal.order_by}.",
            ["record_id", *fields, *_SHOWN],
        ),
    }
    yield "version: 2"
    yield ""
    yield "models:"
    for table, (description, columns) in tables.items():
        yield f"  - name: {table}"
        yield f"    description: {_text(description)}"
        yield "    columns:"
        yield from _columns(columns)


def _staged(name: str) -> str:
    return (
        f"select *\nfrom {{{{ source('bronze', '{name}') }}}}\nwhere _batch_id in (\n"
        f"  select finished.batch_id from {{{{ ref('stg_batches') }}}} as finished\n)\n"
    )


def _config(unique_key: str | list[str], name: str) -> str:
    return (
        f"{{{{ config(\n  incremental_strategy='merge',\n  unique_key={unique_key!r},\n"
        f"  meta={{'verdicts_of': ['{name}']}}\n) }}}}\n"
    )


def _current(proposal: Proposal) -> str:
    name = proposal.name
    key = proposal.key[0] if len(proposal.key) == 1 else list(proposal.key)
    return (
        _config(key, name)
        + f"""{{% set done = done_until('_decided_at') %}}
with

decisions as (
  select *
  from {{{{ ref('{name}_dispositions') }}}}
  where
    disposition = 'current'
    and {{{{ is_after('_decided_at', done) }}}}
),

verdicts as (
  {{{{ latest_verdicts('{name}') }}}}
),

current_{name} as (
  select
    decisions._record_id as record_id,
    {{% for field in contract('{name}').fields %}}
    verdicts.{{{{ field.name }}}},
    {{% endfor %}}
    verdicts.warnings,
    verdicts._source_file,
    verdicts._position,
    verdicts._batch_id,
    decisions._verdict_contract,
    decisions._decided_at
  from decisions
  inner join verdicts on decisions._record_id = verdicts._record_id
)

select * from current_{name}
"""
    )
