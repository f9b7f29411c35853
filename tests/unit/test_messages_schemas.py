import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DataType, StructField, StructType

from ingest.errors import ContractError
from ingest.messages.schemas import changes, column_count, merge, parse_type, plain, written

SIMPLE = ["string", "boolean", "int", "bigint", "float", "double", "date", "timestamp"]
SIMPLE += ["timestamp_ntz", "decimal(18,2)"]
# Few names, two of them the same but for case: else no two schemas ever meet.
NAMES = st.sampled_from(["a", "b", "A", "select", "c"])


def distinct(fields: list[tuple[str, DataType]]) -> StructType:
    found: dict[str, StructField] = {}
    for name, kind in fields:
        found.setdefault(name.lower(), StructField(name, kind))
    return StructType(list(found.values()))


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    return st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3).map(distinct)


TYPES: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(SIMPLE).map(parse_type),
    lambda inner: st.one_of(
        inner.map(lambda kind: parse_type(f"array<{written(kind)}>")), structs(inner)
    ),
    max_leaves=4,
)
SCHEMAS = structs(TYPES)


def in_order(kind: DataType) -> str:
    """A type as a text in which the order of fields does not show."""
    if isinstance(kind, StructType):
        return "{" + ",".join(sorted(f"{f.name}:{in_order(f.dataType)}" for f in kind.fields)) + "}"
    element = getattr(kind, "elementType", None)
    return f"[{in_order(element)}]" if element is not None else kind.simpleString()


def schema(**columns: str) -> StructType:
    return StructType([StructField(name, parse_type(kind)) for name, kind in columns.items()])


@given(SCHEMAS)
def test_a_schema_merged_with_itself_is_itself(one: StructType) -> None:
    merged = merge(one, one)
    assert (merged.schema, merged.conflicts) == (one, [])


@given(SCHEMAS, SCHEMAS)
def test_the_order_of_two_changes_only_the_order_of_fields(one: StructType, two: StructType) -> None:
    here, there = merge(one, two), merge(two, one)

    assert bool(here.conflicts) == bool(there.conflicts)
    if not here.conflicts:
        assert in_order(here.schema) == in_order(there.schema)


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_the_grouping_of_three_changes_nothing(
    one: StructType, two: StructType, three: StructType
) -> None:
    def both(first: StructType, second: StructType) -> StructType | None:
        merged = merge(first, second)
        assert isinstance(merged.schema, StructType)
        return None if merged.conflicts else merged.schema

    first, last = both(one, two), both(two, three)
    left = both(first, three) if first else None
    right = both(one, last) if last else None
    assert (left and in_order(left)) == (right and in_order(right))


@given(SCHEMAS, SCHEMAS)
def test_merging_takes_nothing_away_and_what_is_told_is_what_changed(
    one: StructType, two: StructType
) -> None:
    merged = merge(one, two)
    assert isinstance(merged.schema, StructType)
    again = merge(merged.schema, one)

    assert (again.schema, again.conflicts) == (merged.schema, [])
    assert column_count(merged.schema) >= column_count(one)
    assert bool(changes(one, merged.schema)) == (merged.schema != one)


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("int", "bigint", "bigint"),
        ("int", "double", "double"),
        ("float", "double", "double"),
        ("int", "float", "double"),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("struct<x:int>", "struct<x:bigint,y:string>", "struct<`x`:bigint,`y`:string>"),
    ],
)
def test_what_is_widened(one: str, two: str, both: str) -> None:
    merged = merge(schema(a=one), schema(a=two))
    assert isinstance(merged.schema, StructType)
    assert (written(merged.schema["a"].dataType), merged.conflicts) == (both, [])


WIDENED = {("int", "bigint"), ("int", "double"), ("float", "double"), ("int", "float")}
WIDENED |= {("date", "timestamp_ntz")}


@pytest.mark.parametrize(("one", "two"), list(itertools.combinations(SIMPLE, 2)))
def test_everything_else_is_a_conflict_that_names_the_path(one: str, two: str) -> None:
    # A date has no zone, so it is no timestamp; a bigint has more digits than a double.
    merged = merge(schema(a=f"struct<x:{one}>"), schema(a=f"struct<x:{two}>"))
    if (one, two) in WIDENED or (two, one) in WIDENED:
        assert not merged.conflicts
    else:
        assert [(c.path, c.code) for c in merged.conflicts] == [("a.x", "TYPE_CONFLICT")]


@pytest.mark.parametrize("two", ["array<int>", "struct<x:int>"])
def test_a_list_or_an_object_where_a_number_was_is_a_conflict(two: str) -> None:
    [conflict] = merge(schema(a="int"), schema(a=two)).conflicts
    assert (conflict.path, conflict.code) == ("a", "TYPE_CONFLICT")
    [conflict] = merge(schema(a=two), schema(a="int")).conflicts
    assert (conflict.path, conflict.code) == ("a", "TYPE_CONFLICT")


def test_names_that_differ_by_case_are_a_conflict_that_names_both() -> None:
    [conflict] = merge(schema(Email="string"), schema(email="string")).conflicts
    assert (conflict.path, conflict.code) == ("email", "NAME_DIFFERS_BY_CASE")
    assert "'Email'" in conflict.message


def test_names_that_differ_by_case_in_what_is_added_are_a_conflict_too() -> None:
    [conflict] = merge(schema(a="int"), schema(Id="int", ID="int")).conflicts
    assert (conflict.path, conflict.code) == ("ID", "NAME_DIFFERS_BY_CASE")


def test_changes_are_told_one_by_one_and_by_their_paths() -> None:
    before = schema(a="int", s="struct<x:int>", l="array<struct<y:float>>")
    after = schema(a="bigint", s="struct<x:int,z:string>", l="array<struct<y:double>>", select="boolean")
    assert changes(before, after) == [
        "widen a int to bigint",
        "add s.z string",
        "widen l[].y float to double",
        "add select boolean",
    ]


@given(TYPES)
def test_a_type_is_read_as_it_is_written(kind: DataType) -> None:
    assert parse_type(written(kind)) == kind == plain(kind)


@pytest.mark.parametrize(
    "text",
    ["", "text", "struct<a:int", "struct<>", "array<int", "array int", "int int", "decimal(40,2)",
     "struct<a int>", "map<string,int>", "int;"],
)  # fmt: skip
def test_what_is_no_type_is_refused_in_words(text: str) -> None:
    with pytest.raises(ContractError, match="type"):
        parse_type(text)


def test_the_width_of_a_table_is_that_of_its_single_values() -> None:
    build: Callable[[str], DataType] = parse_type
    assert column_count(build("struct<a:int,b:struct<c:string,d:array<struct<e:int,f:int>>>>")) == 4
