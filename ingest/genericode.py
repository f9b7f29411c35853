"""Reads code lists in OASIS genericode 1.0, as CODICE publishes them (``<list>-<version>.gc``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from ingest.capture.encoding import detect
from ingest.errors import FileReadError

# What CODICE calls the column with a code's name, and its language where the column does not say.
_NAME_COLUMNS = {"nombre": "es", "name": "en"}
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True)
class Code:
    """One row of a list.

    Attributes:
        code: The code as text: ``01`` is not ``1``.
        names: Its name by language, without those that are empty.
        row_values: Every value of the row by column id, as the file has it.
        position: The row's ordinal in the file, from 1.
    """

    code: str
    names: Mapping[str, str]
    row_values: Mapping[str, str]
    position: int


@dataclass(frozen=True)
class CodeList:
    """One version of a list.

    Attributes:
        list_id: The list's short name, ``ContractCode``.
        version: Its version as text, ``2.08``.
        list_uri: Where the publisher says that it lies.
        canonical_uri: The list's own name.
        canonical_version_uri: The version's own name.
        codes: The rows, each code once.
        repeats: How many rows only repeated another.
    """

    list_id: str
    version: str
    list_uri: str | None
    canonical_uri: str | None
    canonical_version_uri: str | None
    codes: tuple[Code, ...]
    repeats: int


def read_code_list(data: bytes, file_name: str) -> CodeList:
    """Read one file. It is taken whole or not at all: half a list would explain half of the codes.

    Args:
        data: The whole file.
        file_name: Its name, for messages.

    Returns:
        The list.

    Raises:
        FileReadError: ``NOT_GENERICODE``, ``NOT_WELL_FORMED``, ``DOCTYPE``, ``NO_LIST_ID``,
            ``NO_VERSION``, ``NO_CODE_COLUMN``, ``NO_ROW``, ``MISSING_CODE``, ``DUPLICATE_CODE``,
            ``WRONG_ENCODING``, or what :func:`ingest.capture.encoding.detect` raises.
    """
    root = _parse(_text(data, file_name), file_name)
    if root.tag.rpartition("}")[2] != "CodeList":
        raise FileReadError(
            "NOT_GENERICODE",
            f"{file_name}: the root element is <{root.tag.rpartition('}')[2]}>, not genericode's "
            "<CodeList>, so it is no code list. Take the list's .gc file from its publisher.",
        )
    canonical_uri = _said(root, "CanonicalUri")
    list_id = _said(root, "ShortName") or (canonical_uri or "").rpartition(":")[2]
    version = _said(root, "Version")
    if not list_id:
        _refuse("NO_LIST_ID", file_name, "<ShortName>", "codes would belong to no list")
    if not version:
        _refuse("NO_VERSION", file_name, "<Version>", "codes change between versions")
    columns = root.findall("{*}ColumnSet/{*}Column")
    code_column = _code_column(root, columns)
    if code_column is None:
        _refuse(
            "NO_CODE_COLUMN", file_name, "column that is its key or is called code", "no row has one"
        )
    languages = _languages(columns, code_column)
    rows = [
        Code(
            values.get(code_column, "").strip(),
            {
                language: values[column].strip()
                for language, column in languages.items()
                if values.get(column, "").strip()
            },
            values,
            position,
        )
        for position, values in enumerate(_rows(root, columns), start=1)
    ]
    if not rows:
        _refuse("NO_ROW", file_name, "<Row>", "a list without codes explains nothing")
    codes = _each_once(rows, file_name)
    return CodeList(
        list_id,
        version,
        _said(root, "LocationUri"),
        canonical_uri,
        _said(root, "CanonicalVersionUri"),
        tuple(codes),
        len(rows) - len(codes),
    )


def cited_as(code_list: CodeList, file_name: str) -> str:
    """Give the last part of the ``listURI`` by which feeds cite a list, without ``.gc``.

    It is the file's published name. That agrees with short name and version in every CODICE list
    seen, while ``LocationUri`` of one names another list and ``CanonicalVersionUri`` of one another
    version. A file that was renamed is known by what stands in it.
    """
    stated = f"{code_list.list_id}-{code_list.version}"
    stem = PurePosixPath(file_name).stem
    return stem if stem.endswith(f"-{code_list.version}") else stated


def _text(data: bytes, file_name: str) -> str:
    encoding = detect(data)
    body = data[encoding.bom_length :]
    try:
        text = body.decode(encoding.name)
    except UnicodeDecodeError as error:
        raise FileReadError(
            "WRONG_ENCODING",
            f"{file_name}: byte {error.start + encoding.bom_length} is no {encoding.name.upper()}, "
            "which the file declares or XML without a declaration has. Names would be damaged. "
            "Correct the declaration, or recode the file, and load it again.",
        ) from error
    if not encoding.name.startswith("utf") and not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            return text
        # Accented letters of a single-byte encoding are hardly ever UTF-8 by chance, in no file all.
        raise FileReadError(
            "WRONG_ENCODING",
            f"{file_name}: the file declares {encoding.name.upper()}, and every letter in it is "
            "written in UTF-8. Names would be damaged, as in 'GestiÃ³n'. Correct the declaration and "
            "load it again.",
        )
    return text


def _parse(text: str, file_name: str) -> ElementTree.Element:
    def refuse_doctype(*_: object) -> None:
        raise FileReadError(
            "DOCTYPE",
            f"{file_name} line {parser.CurrentLineNumber}: the file has a document type, which could "
            "name entities outside of it, and no code list needs one. Remove it and load it again.",
        )

    # expat first: it says where a fault is, and refuses a document type before anything is expanded.
    # With ElementTree's separator, which no namespace may hold, it refuses what ElementTree would.
    parser = expat.ParserCreate("utf-8", "}")
    parser.StartDoctypeDeclHandler = refuse_doctype
    encoded = text.encode("utf-8", "surrogatepass")
    try:
        parser.Parse(encoded, True)
    except expat.ExpatError as error:
        raise FileReadError(
            "NOT_WELL_FORMED",
            f"{file_name} line {error.lineno} column {error.offset + 1}: "
            f"{expat.ErrorString(error.code)}. Half a list would explain half of the codes, so none "
            "of it is taken. Take the file again from its publisher, or correct it, and load it again.",
        ) from error
    return ElementTree.fromstring(encoded, ElementTree.XMLParser(encoding="utf-8"))


def _refuse(error_type: str, file_name: str, lacks: str, why: str) -> NoReturn:
    raise FileReadError(
        error_type,
        f"{file_name}: the list has no {lacks}, and without it {why}. Take the file again from its "
        "publisher, or correct it, and load it again.",
    )


def _said(root: ElementTree.Element, name: str) -> str | None:
    text = root.findtext(f"{{*}}Identification/{{*}}{name}")
    return (text or "").strip() or None


def _code_column(root: ElementTree.Element, columns: list[ElementTree.Element]) -> str | None:
    """The column that is the list's key; where a key has several columns, the one called code."""
    ids = [column.get("Id", "") for column in columns]
    key = root.find("{*}ColumnSet/{*}Key")
    if key is not None:
        keyed = [ref.get("Ref", "") for ref in key.findall("{*}ColumnRef")]
        if len(keyed) == 1 and keyed[0] in ids:
            return keyed[0]
    return next((name for name in ids if name.lower() == "code"), None)


def _languages(columns: list[ElementTree.Element], code_column: str) -> dict[str, str]:
    """By language, the column that holds names in it."""
    found: dict[str, str] = {}
    for column in columns:
        column_id = column.get("Id", "")
        if column_id == code_column:
            continue
        data = column.find("{*}Data")
        said = None if data is None else data.get("Lang") or data.get(_XML_LANG)
        usual = _NAME_COLUMNS.get(column_id.lower())
        language = said or usual
        # A list may hold more texts in a language; the one that is called a name is the name.
        if language and (usual or language not in found):
            found[language] = column_id
    return found


def _rows(root: ElementTree.Element, columns: list[ElementTree.Element]) -> Iterator[dict[str, str]]:
    ids = [column.get("Id", "") for column in columns]
    for row in root.findall("{*}SimpleCodeList/{*}Row"):
        values: dict[str, str] = {}
        place = -1
        for value in row.findall("{*}Value"):
            column = value.get("ColumnRef")
            # The standard: without a reference it is of the column after the last one's.
            place = ids.index(column) if column in ids else place + 1
            name = column or (ids[place] if place < len(ids) else f"_{place + 1}")
            text = value.findtext("{*}SimpleValue")
            if text is not None:
                values[name] = text
        yield values


def _each_once(rows: list[Code], file_name: str) -> list[Code]:
    codes: dict[str, Code] = {}
    for row in rows:
        if not row.code:
            raise FileReadError(
                "MISSING_CODE",
                f"{file_name} row {row.position}: the row has no code, so nothing can cite it. Take "
                "the file again from its publisher, or correct it, and load it again.",
            )
        first = codes.setdefault(row.code, row)
        if first.row_values != row.row_values:
            raise FileReadError(
                "DUPLICATE_CODE",
                f"{file_name} row {row.position}: the code '{row.code}' stands in row "
                f"{first.position} already and says something else, so what it means cannot be told. "
                "Find out which row is right, correct the file and load it again.",
            )
    return list(codes.values())
