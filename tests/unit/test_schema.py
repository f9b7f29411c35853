"""The DDL of a contract is read as the tree that records are walked along."""

from __future__ import annotations

import pytest

from ingest.errors import ContractError
from ingest.schema import Node, parse_ddl


def leaf(name: str, *, is_array: bool = False) -> Node:
    return Node(name, {}, frozenset(), is_array=is_array, has_text=True)


def test_a_record_is_read_as_a_tree() -> None:
    ddl = """
    id STRING,  -- the key
    summary STRUCT<
      _type: STRING,
      _VALUE: STRING
    >,
    link ARRAY<STRUCT<_href: STRING>>,
    Party STRUCT<Name: ARRAY<STRING>>
    """
    assert parse_ddl(ddl) == Node(
        "",
        {
            "id": leaf("id"),
            "summary": Node("summary", {}, frozenset({"type"}), is_array=False, has_text=True),
            "link": Node("link", {}, frozenset({"href"}), is_array=True, has_text=False),
            "Party": Node(
                "Party",
                {"Name": leaf("Name", is_array=True)},
                frozenset(),
                is_array=False,
                has_text=False,
            ),
        },
        frozenset(),
        is_array=False,
        has_text=False,
    )


def test_names_with_underscore_at_the_top_are_attributes_of_the_record() -> None:
    node = parse_ddl("_ref STRING, _when STRING, comment STRUCT<_type: STRING, _VALUE: STRING>")
    assert node.attributes == {"ref", "when"}
    assert list(node.children) == ["comment"]
    assert not node.has_text


def test_text_of_the_record_itself_is_taken_with_value() -> None:
    assert parse_ddl("_VALUE STRING, _type STRING").has_text


def test_type_names_have_no_case_and_backticks_quote() -> None:
    node = parse_ddl("`odd-name` string, b array<struct<`c.d`: String>>")
    assert node.children["odd-name"] == leaf("odd-name")
    assert node.children["b"].is_array
    assert list(node.children["b"].children) == ["c.d"]


@pytest.mark.parametrize(
    ("ddl", "line", "words"),
    [
        ("", 1, "the schema ends where a field name must stand"),
        ("id", 1, "the schema ends where the type of 'id' must stand"),
        ("id STRING,", 1, "the schema ends where a field name must stand"),
        ("id STRING,\nqty INT", 2, "type 'INT' of 'qty'"),
        ("id STRING,\nid STRING", 2, "'id' is there already, since line 1"),
        ("id STRING,\n\nID STRING", 3, "'ID' is there already, since line 1"),
        ("id: STRING", 1, "type ':' of 'id'"),
        ("a STRUCT<b STRING>", 1, "'STRING' stands after the field name 'b', where ':' must"),
        ("a STRUCT<\nb: STRING\n", 3, "the schema ends where ',' or '>' must stand"),
        ("a STRUCT<>", 1, "'>' stands where a field name must"),
        ("a ARRAY<ARRAY<STRING>>", 1, "'a' is an array of arrays"),
        ("a STRUCT<_b: STRUCT<c: STRING>>", 1, "'_b' is an attribute or a text: only STRING"),
        ("a STRUCT<_VALUE: ARRAY<STRING>>", 1, "'_VALUE' is an attribute or a text"),
        ("a STRING NOT NULL", 1, "'NOT' stands where ',' or the end must"),
        ("a STRING >", 1, "'>' stands where ',' or the end must"),
        ("a STRING,\nb (STRING)", 2, "'(' has no meaning here"),
    ],
)
def test_what_is_no_read_schema_is_refused_with_its_line(ddl: str, line: int, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_ddl(ddl)
    assert f"schema line {line}: " in str(caught.value)
    assert words in str(caught.value)
