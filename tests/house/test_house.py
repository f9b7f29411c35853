"""The house rules. Each failure says what to write and where."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from ingest.cli import cli
from ingest.contracts import Rule, load_children, load_contracts
from ingest.environment import PROJECT_ROOT
from ingest.messages.targets import load_targets
from ingest.transform import models_dir, silver_dir

MODELS = PROJECT_ROOT / "dbt_project" / "models"
MACROS = sorted((PROJECT_ROOT / "macros").rglob("*.sql"))
LINKS = {"macros": "../macros", "seeds": "../seeds", "tests": "../tests/dbt"}
MAX_BYTES = 1_000_000
MACRO = re.compile(r"\{%-?\s*(?:macro|materialization)\s+(\w+)\b")
# Macro files that hold a family of macros and are named after the family. A file more needs a reason.
FAMILIES = {
    "children": "what a record holds many of, from contract to table",
    "lake": "where the lake lies and how the catalog is made to say so",
    "laws": "one small predicate per law",
    "lifecycle": "what the states of refused records are in SQL",
    "offline": "what dbt asks Spark, answered without it for the linter",
    "observations": "one macro per table that is observed",
    "message_letters": "what becomes of messages, as dead letters",
    "seed_loading": "how a seed becomes a table, in place of dbt-spark's way",
    "progress": "what earlier runs did, and the clock of this one",
    "verdicts": "the views that every derived table has of the verdicts",
}
# What every judged table holds beside the fields of its contract; see macros/judge.sql.
JUDGED_COLUMNS = {
    "_record_id", "_dataset", "_source_file", "_file_sha256", "_position", "_batch_id",
    "_ingested_at", "_payload_sha256", "_read_contract", "_pipeline_version",
    "_supersedes", "_attempt", "_unparsed", "_parse_error", "_misfits", "failure_reasons", "warnings",
    "_verdict_contract", "_verdict_pass", "_judged_at",
}  # fmt: skip


def name_of(path: Path) -> str:
    return path.relative_to(PROJECT_ROOT).as_posix()


@cache
def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"git {' '.join(arguments)}: {done.stderr.strip()} Run this in a git clone.")
    return done.stdout


def files_in_git() -> list[Path]:
    """What git has or would take: not what it ignores, nor what was deleted since."""
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    paths = [PROJECT_ROOT / name for name in names if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


@cache
def documents() -> dict[Path, dict[str, Any]]:
    return {path: yaml.safe_load(path.read_text("utf-8")) or {} for path in MODELS.rglob("*.yml")}


def described() -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Each model and source table of the YAML: its file, its name, what is said of it."""
    for path, document in documents().items():
        for model in document.get("models", []):
            yield path, model["name"], model
        for source in document.get("sources", []):
            for table in source["tables"]:
                yield path, f"{source['name']}.{table['name']}", table


def tell(problems: list[str]) -> None:
    assert not problems, "\n" + "\n".join(problems)


# -- contracts


class WithRules(NamedTuple):
    """What has rules: a record type, a table of what records hold many of, a target of messages."""

    record_type: str
    path: Path
    rules: tuple[Rule, ...]


def contracts_with_rules() -> list[WithRules]:
    contracts = [*load_contracts(models_dir()).values(), *load_children(silver_dir())]
    targets = load_targets(models_dir()).values()
    return [
        *(WithRules(contract.record_type, contract.path, contract.rules) for contract in contracts),
        *(WithRules(target.name, models_dir() / "messages.yml", target.rules) for target in targets),
    ]


def test_every_rule_says_why_and_how_to_go_on() -> None:
    tell(
        [
            f"{name_of(contract.path)}:{rule.line}: {contract.record_type}, rule {rule.code} has no "
            f"{key}. Write one sentence: {what}."
            for contract in contracts_with_rules()
            for rule in contract.rules
            for key, what in (
                ("why", "why such a record is refused or flagged"),
                ("fix", "what whoever finds it does next"),
            )
            if len(str(getattr(rule, key)).split()) < 2
        ]
    )


def test_every_key_of_the_contracts_is_explained() -> None:
    page = (PROJECT_ROOT / "docs" / "contracts.md").read_text("utf-8")
    explained = set(re.findall(r"`([a-z_]+)`", page))
    used: set[str] = set()
    for contract in load_contracts(models_dir()).values():
        used.update(contract.terms)
        used.update(contract.feed)
        used.update(contract.terms.get("withdrawn_by", {}))
        for part in ("fields", "rules"):
            used.update(key for item in contract.terms[part] for key in item)
    tell(
        [
            f"docs/contracts.md: the key '{key}' of a contract is not explained. Add a row that says "
            f"what it means and what may stand there."
            for key in sorted(used - explained - {"__line__"})
        ]
    )


def test_every_rule_has_golden_rows_and_every_golden_folder_a_rule() -> None:
    golden = PROJECT_ROOT / "tests" / "golden"
    rules = {
        f"{contract.record_type}/{rule.code}": f"{name_of(contract.path)}:{rule.line}"
        for contract in contracts_with_rules()
        for rule in contract.rules
    }
    problems = []
    files = [path for path in files_in_git() if golden in path.parents and path.parent != golden]
    for rule, place in rules.items():
        found = [path.stem.split("_")[-1] for path in files if path.parent == golden / rule]
        for word, what in (("caught", "must catch"), ("left", "must leave: near misses, boundaries")):
            if word not in found:
                problems.append(
                    f"{place}: no golden rows show what {rule} {what}. Write them into a file "
                    f"tests/golden/{rule}/...{word}.<extension>; tests/golden/README.md says how."
                )
    for path in files:
        if path.parent.relative_to(golden).as_posix() not in rules:
            problems.append(
                f"{name_of(path)} is in the folder of no rule: no contract has that code. Delete it, "
                f"or move it to tests/golden/<record type or child table>/<CODE>/."
            )
        elif path.stem.split("_")[-1] not in ("caught", "left"):
            problems.append(
                f"{name_of(path)} is neither of rows to catch nor of rows to leave. Let its name end "
                f"in 'caught' or 'left' before the extension."
            )
    tell(problems)


# -- macros


@pytest.mark.parametrize("path", MACROS, ids=name_of)
def test_every_macro_says_what_it_does(path: Path) -> None:
    text = path.read_text("utf-8")
    parts = re.split(MACRO, text)
    problems = []
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        opening = re.search(r"\s*-?%\}\s*(\{#-?\s*(.*?)\s*-?#\})?", body, re.DOTALL)
        words = (opening.group(2) or "").split() if opening else []
        if len(words) < 3:
            problems.append(
                f"{name_of(path)}: macro {name} has no doc comment. Write '{{#- What it gives, in a "
                f"sentence. -#}}' as its first line."
            )
    assert parts[1:], f"{name_of(path)} holds no macro. Move what it holds, or delete the file."
    tell(problems)


@pytest.mark.parametrize("path", MACROS, ids=name_of)
def test_a_macro_file_is_named_after_its_first_macro(path: Path) -> None:
    names = re.findall(MACRO, path.read_text("utf-8"))
    if path.stem not in FAMILIES:
        assert names[:1] == [path.stem], (
            f"{name_of(path)} begins with macro {names[0] if names else '(none)'}. Rename the file "
            f"to {names[0] if names else '...'}.sql, or move macro {path.stem} to its top."
        )


def test_a_macro_name_is_there_once() -> None:
    places: dict[str, list[str]] = {}
    for path in MACROS:
        for name in re.findall(r"\{%-?\s*macro\s+(\w+)\s*\(", path.read_text("utf-8")):
            places.setdefault(name, []).append(name_of(path))
    tell(
        [
            f"macro {name} is in {' and '.join(where)}: dbt takes one of them. Rename or delete one."
            for name, where in places.items()
            if len(where) > 1
        ]
    )


def test_no_family_is_named_that_is_not_there() -> None:
    gone = set(FAMILIES) - {path.stem for path in MACROS}
    assert not gone, f"tests/house/test_house.py: delete {sorted(gone)} from FAMILIES."


# -- Makefile and README


def makefile_targets() -> dict[str, str]:
    text = (PROJECT_ROOT / "Makefile").read_text("utf-8")
    return dict(re.findall(r"^([a-z][a-z-]*):(?!=)(.*)$", text, re.MULTILINE))


def test_every_make_target_has_help() -> None:
    tell(
        [
            f"Makefile: target {name} has no help. Write '## What it does' at the end of its line."
            for name, rest in makefile_targets().items()
            if not re.search(r"## \S", rest)
        ]
    )


def test_every_make_target_in_readme_is_there() -> None:
    readme = (PROJECT_ROOT / "README.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", readme, re.DOTALL))
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)\b", code))
    tell(
        [
            f"README.md: 'make {name}' is no target. Correct the name, or add it to the Makefile."
            for name in sorted(named - set(makefile_targets()))
        ]
    )


def pages() -> list[Path]:
    return [PROJECT_ROOT / "README.md", *sorted((PROJECT_ROOT / "docs").rglob("*.md"))]


def understood(line: str) -> None:
    """Let the command line read its arguments, as far as it goes without doing anything."""
    command: click.Command = cli
    context, arguments = click.Context(cli), shlex.split(line)[1:]
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(context.info_name, arguments, parent=context.parent)


def test_every_command_in_the_docs_is_understood() -> None:
    # Also those that no test runs as they stand, because they name somebody's files or a server.
    problems = []
    for page in pages():
        blocks = re.findall(r"^```\w*\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        lines = "".join(blocks).replace("\\\n", " ").splitlines()
        for line in lines:
            shown = re.sub(r"<[^<>]*>", "placeholder", line.removeprefix(".venv/bin/"))
            if re.match(r"lakehouse(?!:) ", shown):
                try:
                    understood(shown)
                except (click.ClickException, ValueError) as error:
                    # The reader's own files are not here.
                    if re.search(r"does not exist|No such file", str(error)):
                        continue
                    problems.append(f"{name_of(page)}: '{line}' is refused: {error}. Correct it.")
    tell(problems)


def test_every_path_in_readme_is_there() -> None:
    at_home = {path.name for path in PROJECT_ROOT.iterdir()} - {"lake", "samples"}
    problems = []
    for page in pages():
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for name in re.findall(r"`([^`\s]+)`", text):
            first = name.split("/")[0]
            is_path = (("/" in name and first in at_home) or name in at_home) and "<" not in name
            found = list(PROJECT_ROOT.glob(name)) if "*" in name else [PROJECT_ROOT / name]
            if is_path and not any(path.exists() for path in found):
                problems.append(f"{name_of(page)} names {name}, which is not there. Correct it.")
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            if not (page.parent / target).exists():
                problems.append(f"{name_of(page)} links to {target}, which is not there. Correct it.")
    tell(problems)


# -- tests


def test_no_test_is_switched_off() -> None:
    switches = re.compile(
        r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b|\bassert True\b"
        r"|\benabled\s*[:=]\s*false\b|unittest\.skip",
        re.IGNORECASE,
    )
    problems = []
    for path in files_in_git():
        name = name_of(path)
        if path == Path(__file__) or not (name.startswith("tests/") or path.suffix == ".yml"):
            continue
        if path.suffix not in (".py", ".sql", ".yml"):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if found := switches.search(line):
                problems.append(
                    f"{name}:{number}: '{found.group(0)}' switches a test off. Make the test work, "
                    f"or delete it and say in the commit why it is not needed."
                )
    tell(problems)


# -- links, locks, sizes


@pytest.mark.parametrize(("name", "target"), LINKS.items())
def test_the_folders_of_dbt_are_relative_links(name: str, target: str) -> None:
    link = PROJECT_ROOT / "dbt_project" / name
    remedy = f"Run: rm -rf dbt_project/{name}; ln -s {target} dbt_project/{name}; git add it."
    entry = git("ls-files", "-s", f"dbt_project/{name}").split()

    assert link.is_symlink(), f"dbt_project/{name} is no link. {remedy}"
    assert link.readlink().as_posix() == target, f"dbt_project/{name} leads elsewhere. {remedy}"
    assert link.is_dir(), f"{target} is not there. Git keeps no empty folder: put a file into it."
    assert entry[:1] == ["120000"], f"dbt_project/{name} is no link in git. {remedy}"


@pytest.mark.parametrize("name", LINKS.values())
def test_a_linked_folder_holds_a_file_in_git(name: str) -> None:
    folder = name.removeprefix("../")
    assert any(name_of(path).startswith(f"{folder}/") for path in files_in_git()), (
        f"{folder}/ holds no file, so a clone has no such folder and dbt_project's link leads "
        f"nowhere. Put a file into it: a seed, a test, or a README.md that says what belongs there."
    )


def test_locks_hold_no_address() -> None:
    locks = [path for path in files_in_git() if path.suffix == ".lock"]
    assert locks, "There is no lock file in git. Write requirements/*.lock with hashes."
    tell(
        [
            f"{name_of(path)}:{number}: '://' is an address, and who installs has another index. "
            f"Write the lock again without index lines."
            for path in locks
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if "://" in line
        ]
    )


def test_no_file_in_git_is_large() -> None:
    tell(
        [
            f"{name_of(path)} has {path.stat().st_size:,} bytes; {MAX_BYTES:,} is the most. Generate "
            f"it in the test that needs it, or put it into .gitignore."
            for path in files_in_git()
            if path.stat().st_size > MAX_BYTES
        ]
    )


# -- descriptions


def test_every_model_is_described() -> None:
    known = {name: path for path, name, _ in described()}
    tell(
        [
            f"{name_of(path)} is in no YAML. Add '- name: {path.stem}' with a description that opens "
            f"'One row per' and its columns to a .yml beside it."
            for path in sorted(MODELS.rglob("*.sql"))
            if path.stem not in known
        ]
        + [
            f"{name_of(path)}: model {name} has no .sql. Delete it there, or write the model."
            for name, path in known.items()
            if "." not in name and not list(MODELS.rglob(f"{name}.sql"))
        ]
    )


def test_every_description_says_what_a_row_is() -> None:
    tell(
        [
            f"{name_of(path)}: the description of {name} must open 'One row per'; it is "
            f"'{str(item.get('description') or '')[:40]}'."
            for path, name, item in described()
            if not str(item.get("description") or "").startswith("One row per ")
        ]
    )


def test_every_column_is_described() -> None:
    problems = []
    for path, name, item in described():
        columns = item.get("columns", [])
        if not columns:
            problems.append(f"{name_of(path)}: {name} lists no columns. List each one it has.")
        seen: set[str] = set()
        for column in columns:
            if not column.get("description"):
                problems.append(
                    f"{name_of(path)}: column {column['name']} of {name} has no description. Quote "
                    f"its docs block: '{{{{ doc(\"...\") }}}}'."
                )
            if column["name"] in seen:
                problems.append(f"{name_of(path)}: column {column['name']} of {name} is there twice.")
            seen.add(column["name"])
    tell(problems)


def test_every_source_says_what_it_is() -> None:
    tell(
        [
            f"{name_of(path)}: the source {source['name']} is described nowhere. Give it a description "
            f"in one of the files that name it."
            for path, document in documents().items()
            for source in document.get("sources", [])
            if not any(
                other.get("description")
                for each in documents().values()
                for other in each.get("sources", [])
                if other["name"] == source["name"]
            )
        ]
    )


def test_every_quoted_docs_block_is_there_and_every_block_is_quoted() -> None:
    blocks: set[str] = set()
    for page in MODELS.rglob("*.md"):
        blocks.update(re.findall(r"\{%\s*docs\s+(\w+)\s*%\}", page.read_text("utf-8")))
    texts = {p: p.read_text("utf-8") for p in documents()}
    quoted = {
        block: path for path, text in texts.items() for block in re.findall(r'doc\("(\w+)"\)', text)
    }
    tell(
        [
            f"{name_of(path)} quotes doc('{block}'), which is in no .md. Write the block."
            for block, path in quoted.items()
            if block not in blocks
        ]
        + [
            f"docs block {block} is quoted by no column. Delete it from dbt_project/models."
            for block in sorted(blocks - set(quoted))
        ]
    )


def test_staging_models_list_the_columns_of_their_source() -> None:
    listed = {name: [c["name"] for c in item.get("columns", [])] for _, name, item in described()}
    tell(
        [
            f"staging.yml: stg_{name.removeprefix('bronze.')} must list the columns of the source "
            f"table, in its order. Missing: {sorted(set(columns) - set(staged))}; not in the source: "
            f"{sorted(set(staged) - set(columns))}."
            for name, columns in listed.items()
            if name.startswith("bronze.")
            and (staged := listed.get(f"stg_{name.removeprefix('bronze.')}", [])) != columns
        ]
    )


def test_judged_models_list_every_column_they_have() -> None:
    listed = {name: {c["name"] for c in item.get("columns", [])} for _, name, item in described()}
    problems = []
    for record_type, contract in load_contracts(models_dir()).items():
        model = f"{record_type}_judged"
        has = JUDGED_COLUMNS | {field.name for field in contract.fields}
        for column in sorted(has - listed.get(model, set())):
            problems.append(
                f"silver.yml: {model} has the column {column}, which is not listed. Add it with its "
                f"docs block; it comes from {name_of(contract.path)} or macros/judge.sql."
            )
        for column in sorted(listed.get(model, set()) - has):
            problems.append(f"silver.yml: {model} lists {column}, which it has not. Delete it.")
        for column in sorted(
            {field.name for field in contract.fields} - listed.get(f"{record_type}_quarantine", set())
        ):
            problems.append(f"silver.yml: {record_type}_quarantine does not list {column}. Add it.")
    tell(problems)


def test_no_pattern_repeats_a_group_possessively() -> None:
    # Until Python 3.11.5, which many systems ship, such a repeat may match less than it should.
    tell(
        [
            f"{name_of(path)}:{number}: '(...)*+' matches wrongly before Python 3.11.5. Repeat the "
            "group inside an atomic one: '(?>(...)*)'."
            for path in files_in_git()
            if path.suffix == ".py" and path.is_relative_to(PROJECT_ROOT / "ingest")
            for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
            if re.search(r"(?<!\\)\)[*+?]\+", line) and "``" not in line
        ]
    )
