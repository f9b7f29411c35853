import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from ingest.messages.envelope import parse
from ingest.messages.fitting import Asked, Request, as_instant, ask, gather, number_as, value_as
from ingest.messages.schemas import MAX_DEPTH, columns_written, merge, parse_type

WIDEST = 2000
EMPTY = StructType([])


def schema(**columns: str) -> StructType:
    return StructType([StructField(name, parse_type(kind)) for name, kind in columns.items()])


def asked(have: StructType, text: str, widest: int = WIDEST) -> Asked:
    return ask(have, parse(text), widest)


def told(have: StructType, text: str) -> list[tuple[str, str]]:
    return [(c.path, c.code) for c in asked(have, text).conflicts]


def grown(have: StructType, found: Asked) -> StructType:
    merged = merge(have, found.wanted)
    assert isinstance(merged.schema, StructType) and not merged.conflicts
    return merged.schema


# -- what fits, what is asked for


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "2147483647"), ("int", "5.0"), ("int", "1E+3"), ("bigint", "-9223372036854775808"),
        ("double", "0.1"), ("double", "7"), ("double", "1e300"), ("float", "0.5"), ("float", "3"),
        ("decimal(6,2)", "1234.50"), ("decimal(6,2)", "-9999.99"), ("decimal(6,2)", "12.3000"),
        ("string", '""'), ("boolean", "false"), ("date", '"2024-02-29"'),
        ("timestamp_ntz", '"2024-02-29T10:00:00"'), ("timestamp_ntz", '"2024-02-29"'),
        ("timestamp", '"2024-02-29T10:00:00+02:00"'), ("int", "null"), ("array<int>", "[]"),
        ("array<int>", "[1, null]"), ("struct<x:int>", "{}"),
    ],
)  # fmt: skip
def test_a_value_that_the_column_holds_exactly_fits(kind: str, value: str) -> None:
    assert asked(schema(a=kind), f'{{"a": {value}}}').fits


@pytest.mark.parametrize(
    ("kind", "value", "wider"),
    [
        ("int", "2147483648", "bigint"), ("int", "-3e9", "bigint"), ("int", "1.5", "double"),
        ("float", "0.1", "double"), ("float", "1e39", "double"), ("float", "16777217", "double"),
        ("date", '"2024-02-29T10:00:00"', "timestamp_ntz"),
        ("array<int>", "[1, 2147483648]", "array<bigint>"), ("array<int>", "[1.5, 2]", "array<double>"),
        ("struct<x:int>", '{"x": 2147483648}', "struct<`x`:bigint>"),
        ("struct<x:int>", '{"y": true}', "struct<`y`:boolean>"),
        ("array<struct<x:int>>", '[{"x": 1}, {"y": "z"}]', "array<struct<`x`:int,`y`:string>>"),
    ],
)  # fmt: skip
def test_a_value_that_a_wider_column_would_hold_asks_for_it(kind: str, value: str, wider: str) -> None:
    found = asked(schema(a=kind), f'{{"a": {value}}}')
    assert (columns_written(found.wanted), found.conflicts) == (f"`a` {wider}", ())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("1", "int"), ("2147483648", "bigint"), ("1.0", "double"), ('"2024-05-01"', "string"),
        ("true", "boolean"), ("[1, 1.5]", "array<double>"),
        ("[[1], [2147483648]]", "array<array<bigint>>"),
        ('{"x": {"y": 1}}', "struct<`x`:struct<`y`:int>>"),
    ],
)  # fmt: skip
def test_a_new_field_asks_for_a_column_and_no_text_is_taken_for_a_time(value: str, kind: str) -> None:
    assert columns_written(asked(EMPTY, f'{{"a": {value}}}').wanted) == f"`a` {kind}"


@pytest.mark.parametrize("value", ["null", "[]", "{}", "[null]", "[[]]", '{"x": null}'])
def test_what_does_not_say_its_type_asks_for_nothing(value: str) -> None:
    assert asked(EMPTY, f'{{"a": {value}}}').fits


@pytest.mark.parametrize(
    ("kind", "value", "path", "code"),
    [
        ("int", '"seven"', "a", "TYPE_CONFLICT"), ("int", '"7"', "a", "TYPE_CONFLICT"),
        ("string", "7", "a", "TYPE_CONFLICT"), ("int", "true", "a", "TYPE_CONFLICT"),
        ("boolean", "1", "a", "TYPE_CONFLICT"), ("int", "{}", "a", "TYPE_CONFLICT"),
        ("struct<x:int>", "1", "a", "TYPE_CONFLICT"), ("int", "[1]", "a", "TYPE_CONFLICT"),
        ("struct<x:array<int>>", '{"x": ["y"]}', "a.x[]", "TYPE_CONFLICT"),
        ("date", '"2024-02-29T10:00:00Z"', "a", "TYPE_CONFLICT"),
        ("date", '"2023-02-29"', "a", "TYPE_CONFLICT"),
        ("date", '"2024-02-29\\n"', "a", "TYPE_CONFLICT"),
        ("timestamp", '"2024-02-29T10:00:00"', "a", "TYPE_CONFLICT"),
        ("timestamp_ntz", '"2024-02-29T10:00:00.1234567"', "a", "TYPE_CONFLICT"),
        ("bigint", "1.5", "a", "NUMBER_NOT_EXACT"),
        ("double", "9007199254740993", "a", "NUMBER_NOT_EXACT"),
        ("double", "0.1234567890123456789", "a", "NUMBER_NOT_EXACT"),
        ("double", "1e999", "a", "NUMBER_TOO_LARGE"), ("decimal(6,2)", "10000", "a", "NUMBER_NOT_EXACT"),
        ("decimal(6,2)", "0.005", "a", "NUMBER_NOT_EXACT"),
        ("int", "1e-999999", "a", "NUMBER_NOT_EXACT"), ("bigint", "1e999999", "a", "NUMBER_TOO_LARGE"),
    ],
)  # fmt: skip
def test_what_no_widening_helps_is_a_conflict_that_names_its_path(
    kind: str, value: str, path: str, code: str
) -> None:
    found = asked(schema(a=kind), f'{{"a": {value}}}')
    assert [(c.path, c.code) for c in found.conflicts] == [(path, code)]
    assert not found.wanted.fields


def test_a_list_of_many_kinds_and_an_integer_beyond_all_types_are_conflicts() -> None:
    assert told(EMPTY, '{"a": [1, "x"]}') == [("a[]", "TYPE_CONFLICT")]
    assert told(EMPTY, '{"a": 9223372036854775808}') == [("a", "NUMBER_TOO_LARGE")]


def test_names_that_differ_by_case_conflict_with_the_table_and_with_each_other() -> None:
    assert told(schema(email="string"), '{"Email": "x"}') == [("Email", "NAME_DIFFERS_BY_CASE")]
    assert told(EMPTY, '{"Id": 1, "ID": 2}') == [("ID", "NAME_DIFFERS_BY_CASE")]
    assert told(EMPTY, '{"a": {"Id": 1, "ID": 2}}') == [("a.ID", "NAME_DIFFERS_BY_CASE")]


def test_words_that_sql_reserves_are_names_like_others() -> None:
    found = asked(EMPTY, '{"select": 1, "order": {"from": "x"}, "año": 1}')
    assert columns_written(found.wanted) == "`select` int, `order` struct<`from`:string>, `año` int"
    assert not found.conflicts


@pytest.mark.parametrize(
    "name", ["", "a b", "a.b", "a`b", "a,b", "a\\nb", "n" * 256, "_key", "_Message_ID"]
)
def test_names_that_no_table_takes_are_conflicts(name: str) -> None:
    [conflict] = asked(EMPTY, f'{{"{name}": 1}}').conflicts
    assert conflict.code == "NAME_NOT_ALLOWED"


def test_the_jobs_own_names_are_free_inside_an_object_and_others_with_underscores_everywhere() -> None:
    assert not asked(EMPTY, '{"_id": 1}').conflicts
    assert not asked(EMPTY, '{"a": {"_key": 1}}').conflicts


def nested(depth: int) -> str:
    return '{"a": ' * (depth - 1) + '{"a": 1}' + "}" * (depth - 1)


def test_fifty_deep_fits_and_one_more_does_not() -> None:
    assert not asked(EMPTY, nested(MAX_DEPTH)).conflicts
    [conflict] = asked(EMPTY, nested(MAX_DEPTH + 1)).conflicts
    assert conflict.code == "TOO_DEEP"
    assert told(EMPTY, '{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}")[0][1] == "TOO_DEEP"


def test_five_thousand_keys_are_more_than_a_table_may_have_and_the_limit_itself_fits() -> None:
    keys = json.dumps({f"k{number}": number for number in range(5000)})
    [conflict] = asked(EMPTY, keys).conflicts
    assert conflict.code == "TOO_MANY_COLUMNS"
    assert "5,000" in conflict.message and "2,000" in conflict.message
    assert not asked(EMPTY, keys, widest=5000).conflicts
    have = schema(a="int", b="string")
    assert not asked(have, '{"c": 1}', widest=3).conflicts
    assert asked(have, '{"c": 1, "d": 1}', widest=3).conflicts
    # Only what makes it wider is asked: a table that is too wide already still takes what fits.
    assert asked(have, '{"a": 1}', widest=1).fits


def test_the_error_says_every_conflict_and_what_the_table_lacks() -> None:
    have = schema(a="int", b="int")
    found = asked(have, '{"a": "x", "b": 2147483648, "c": {"d": true}}')
    assert found.error(have).splitlines() == [
        "TYPE_CONFLICT at a: a text stands where the table has int, which cannot hold both",
        "SCHEMA_LACKS: the table needs: widen b int to bigint; add c struct<`d`:boolean>",
    ]


def test_no_error_repeats_a_value() -> None:
    secret = "ES91 2100 0418"
    have = schema(a="int", d="date")
    assert secret not in asked(have, json.dumps({"a": secret, "d": secret})).error(have)
    card = 4111111111111111
    have = schema(a="string", d="decimal(6,2)", b="boolean")
    assert str(card) not in asked(have, json.dumps({"a": card, "d": card, "b": card})).error(have)


# -- properties

NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66),
    st.integers(-(2**54), 2**54),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Decimal(repr(x))),
    st.decimals(allow_nan=False, allow_infinity=False, places=4),
)
WIDENINGS = [("int", "bigint"), ("int", "double"), ("float", "double")]


def _as_written(held: float | Decimal) -> int | Decimal:
    """A number as it is shown: 2**-52 has more digits than a text of it needs."""
    return Decimal(repr(held)) if isinstance(held, float) else held


@example(Decimal("2.220446049250313E-16"), ("float", "double"))
@given(NUMBERS, st.sampled_from(WIDENINGS))
def test_widening_never_loses_a_value(number: int | Decimal, widening: tuple[str, str]) -> None:
    narrow, wide = map(parse_type, widening)
    held = number_as(number, narrow)
    if held is not None:
        assert number_as(number, wide) == held
        assert _as_written(held) == number


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_that_its_table_widens_says_what_its_text_said(number: float) -> None:
    # What a float column holds is the same number as a double, so its digits are those of the text.
    held = number_as(Decimal(repr(number)), parse_type("float"))
    assert held == number


@given(NUMBERS, st.sampled_from(["int", "bigint", "double", "decimal(38,10)"]))
def test_a_number_is_held_exactly_or_not_at_all(number: int | Decimal, kind: str) -> None:
    held = number_as(number, parse_type(kind))
    if held is not None:
        assert _as_written(held) == number


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.text(max_size=3),
        st.sampled_from(["2024-05-01", "2024-05-01T10:00:00"]),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcA"), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip
DATA = st.dictionaries(st.sampled_from(["a", "b", "c", "A"]), JSON, max_size=3)


@example({"a": [{"a": None}, {"A": False}]})
@given(DATA)
def test_what_was_granted_fits_when_it_is_tried_again(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    found = asked(EMPTY, text)
    if not found.conflicts:
        assert asked(grown(EMPTY, found), text).fits


# Every value in it says its type.
SAID = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.recursive(
        st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.text(max_size=3), st.floats(-9, 9)),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
        ),
        max_leaves=6,
    ),
    max_size=3,
)


@given(SAID, SAID)
def test_a_message_that_fitted_still_fits_when_another_was_granted(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    first = asked(EMPTY, json.dumps(one))
    if first.conflicts:
        return
    have = grown(EMPTY, first)
    second = asked(have, json.dumps(two))
    if not second.conflicts:
        assert asked(grown(have, second), json.dumps(one)).fits


@given(SAID)
def test_a_value_comes_back_as_it_was(data: dict[str, Any]) -> None:
    def without_lacking(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_lacking(v) for k, v in value.items() if v is not None}
        return [without_lacking(item) for item in value] if isinstance(value, list) else value

    text = json.dumps(data)
    found = asked(EMPTY, text)
    if not found.conflicts:
        assert without_lacking(value_as(parse(text), grown(EMPTY, found))) == data


@pytest.mark.parametrize("value", ["[[], 0]", "[0, []]", "[{}, 0]", "[[], {}]", "[[{}], [1]]"])
def test_an_empty_list_or_object_beside_another_kind_is_a_conflict(value: str) -> None:
    [(_, code)] = told(EMPTY, f'{{"a": {value}}}')
    assert code == "TYPE_CONFLICT"


def test_what_was_empty_in_one_object_of_a_list_is_told_by_the_next() -> None:
    found = asked(EMPTY, '{"a": [{"x": []}, {"x": [1]}, {"x": [2.5]}, {"x": []}]}')
    assert columns_written(found.wanted) == "`a` array<struct<`x`:array<double>>>"


def test_an_unknown_empty_list_inside_a_known_one_asks_for_nothing() -> None:
    assert asked(schema(a="array<struct<x:int>>"), '{"a": [{"x": 1, "y": []}]}').fits


# -- values


def test_an_instant_is_given_in_utc() -> None:
    found = as_instant("2024-02-29T10:00:00+02:00")
    assert found is not None and (found.hour, found.tzinfo) == (8, UTC)
    # It has no such year in UTC.
    assert as_instant("0001-01-01T00:00:00+02:00") is None


def test_values_are_typed_as_the_schema_says() -> None:
    have = schema(
        d="date", n="timestamp_ntz", m="timestamp_ntz", i="timestamp", x="decimal(6,2)", f="double",
        s="struct<a:int,b:string>", l="array<date>", gone="string",
    )  # fmt: skip
    text = (
        '{"d": "2024-02-29", "n": "2024-02-29", "m": "2024-02-29 10:00:00.5", '
        '"i": "2024-02-29T10:00:00+02:00", "x": 1.5, "f": 1, "s": {"b": "x"}, "l": ["2024-01-01", null]}'
    )
    assert asked(have, text).fits
    assert value_as(parse(text), have) == {
        "d": date(2024, 2, 29),
        "n": datetime(2024, 2, 29),
        "m": datetime(2024, 2, 29, 10, 0, 0, 500000),
        "i": datetime(2024, 2, 29, 8, tzinfo=UTC),
        "x": Decimal("1.50"),
        "f": 1.0,
        "s": {"a": None, "b": "x"},
        "l": [date(2024, 1, 1), None],
        "gone": None,
    }


# -- a window's changes


def request(text: str, have: StructType = EMPTY, messages: int = 1) -> Request:
    return Request(asked(have, text).wanted, messages, (text,))


def test_a_window_merges_all_requests_into_one_change() -> None:
    have = schema(a="int")
    plan = gather(
        have,
        [request('{"b": 1}', have), request('{"b": 2147483648}', have), request('{"a": 1.5}', have)],
        WIDEST,
    )
    assert columns_written(plan.after) == "`a` double, `b` bigint"
    assert (len(plan.granted), plan.refused) == (3, ())
    assert plan.before == have


def test_of_two_requests_that_conflict_the_first_is_granted_and_the_second_told_why() -> None:
    plan = gather(EMPTY, [request('{"b": 1}'), request('{"b": "x", "c": 1}')], WIDEST)
    assert columns_written(plan.after) == "`b` int"
    [(refused, [conflict])] = plan.refused
    assert refused.examples == ('{"b": "x", "c": 1}',)
    assert (conflict.path, conflict.code) == ("b", "TYPE_CONFLICT")


def test_requests_that_together_make_the_table_too_wide_are_granted_up_to_the_limit() -> None:
    plan = gather(EMPTY, [request('{"a": 1}'), request('{"b": 1}'), request('{"c": 1}')], 2)
    assert columns_written(plan.after) == "`a` int, `b` int"
    assert [conflict.code for _, (conflict,) in plan.refused] == ["TOO_MANY_COLUMNS"]


@given(st.permutations(['{"b": 1}', '{"b": 2.5}', '{"c": {"d": 1}}', '{"c": {"e": [1]}}']))
def test_where_nothing_conflicts_the_order_of_requests_does_not_matter(texts: list[str]) -> None:
    plan = gather(EMPTY, [request(text) for text in texts], WIDEST)
    assert not plan.refused
    fields = {f.name: f for f in plan.after.fields}
    assert sorted(fields) == ["b", "c"]
    assert fields["b"].dataType.simpleString() == "double"


def test_a_thousand_shapes_make_one_schema() -> None:
    requests = [request(f'{{"k{number}": 1}}') for number in range(1000)]
    assert len(gather(EMPTY, requests, WIDEST).after.fields) == 1000
