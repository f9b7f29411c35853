"""PLACSP: what an entry holds many of, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

from conftest import SampleLake, rows
from page_counts import ELEMENTS, PLACES, compare

from ingest.contracts import load_children
from ingest.lake import Lake
from ingest.session import start_on
from ingest.transform import invoke_dbt, silver_dir

CHILD_TABLES = {contract.record_type for contract in load_children(silver_dir())}


def test_every_element_and_every_cent_of_the_pages_is_somewhere(
    sample_lake: SampleLake, grown_lake: Lake, golden_files: Path
) -> None:
    samples = compare(sorted(sample_lake.samples.rglob("*.atom")), sample_lake.lake.path)
    damaged = Path(__file__).parent / "damaged_children.atom"
    golden = compare([damaged, *sorted(golden_files.rglob("*.atom"))], grown_lake.path)
    lines = [*samples.lines, *golden.lines]
    assert [line for line in lines if line.missing] == []
    # That nothing is missing says something only where there is something: of each table, in each place.
    assert {line.item[0] for line in lines} == {"placsp_entries", *ELEMENTS}
    assert all(any(line.amounts[place] for line in lines) for place in PLACES)
    # What is not whole XML no parser but the project's own can count; its damaged pages are three.
    assert len(samples.not_well_formed) == 3


def test_tables_show_the_children_of_current_versions_alone(sample_lake: SampleLake) -> None:
    for table in ELEMENTS:
        assert not rows(
            sample_lake.lake,
            f"select 1 from silver.{table} where record_id not in "
            "(select record_id from silver.placsp_entries)",
        ), table
    # Amounts agree to the cent with what the accepted current records hold.
    [(shown, held)] = rows(
        sample_lake.lake,
        "select (select sum(tax_exclusive_amount) from silver.placsp_results), "
        "(select sum(result.row.tax_exclusive_amount) from (select unnest(placsp_results) as result "
        "from silver.placsp_entries_children join silver.placsp_entries using (record_id)))",
    )
    assert shown == held and shown is not None


def test_history_shows_superseded_versions_beside_what_the_tables_show(grown_lake: Lake) -> None:
    assert {table for schema, table in grown_lake.tables() if schema == "silver"} > CHILD_TABLES
    for table in CHILD_TABLES:
        shown, history = f"silver.{table}", f"history.{table}"
        columns = [name for (name, *_) in rows(grown_lake, f"describe select * from {shown}")]
        # Which contracts a row hangs on is told for the table and for the arrays each in its way.
        same = ", ".join(f'"{name}"' for name in columns if name != "_verdict_contract")
        current = f"select {same} from {history} where not is_superseded"
        for one, other in (
            (current, f"select {same} from {shown}"),
            (f"select {same} from {shown}", current),
        ):
            assert rows(grown_lake, f"{one} except all {other}") == [], table
    assert rows(
        grown_lake,
        "select distinct record_id from history.placsp_buyers where is_superseded order by 1",
    ) == rows(
        grown_lake,
        "select distinct record_id from silver.placsp_entries_children "
        "join silver.placsp_entry_versions using (record_id) "
        "where is_superseded "
        "and list_contains([len(each.failure_reasons) for each in placsp_buyers], 0) order by 1",
    )


def test_spark_has_the_same_views_of_history(grown_lake: Lake) -> None:
    spark = start_on(grown_lake)
    outcome = invoke_dbt(grown_lake, ["--quiet", "run-operation", "create_history_views"])
    assert outcome.error is None and not outcome.failures
    assert {row.tableName for row in spark.sql("show tables in history").collect()} == CHILD_TABLES
    columns = "record_id, ordinal, is_superseded, lot_id, result_code_name, tax_exclusive_amount"
    asked = f"select {columns} from history.placsp_results order by 1, 2"
    found = [tuple(row) for row in spark.sql(asked).collect()]
    assert found == rows(grown_lake, asked)
    assert any(name for *_, name, _ in found) and {row[2] for row in found} == {True, False}


def test_offsets_of_deadlines_and_deletions_are_kept(grown_lake: Lake) -> None:
    # Of the time where it has one, else of the day; where none is published none is made up.
    assert rows(
        grown_lake,
        "select submission_deadline_date::text, submission_deadline_offset, "
        "participation_deadline_offset, document_deadline_offset, document_deadline_time "
        "from silver.placsp_entries where entry_id = 'https://example.org/children/1'",
    ) == [("2024-08-01", "+02:00", "Z", None, "14:00")]
    assert rows(
        grown_lake,
        "select sent_dates::text, sent_times, sent_offsets from silver.placsp_notices "
        "where entry_id = 'https://example.org/children/1'",
    ) == [("[2024-07-01, 2024-07-02]", ["00:30:00", None], ["+02:00", None])]
    deleted = rows(
        grown_lake,
        "select distinct deleted_at_offset, trim(_when) from silver.placsp_entries "
        "join silver.placsp_entries_dispositions on record_id = _record_id join "
        "bronze.placsp_deleted_entries as tombstone on by_record_id = tombstone._record_id "
        "where is_deleted",
    )
    assert deleted and all(str(said).endswith(str(offset)) for offset, said in deleted)


def test_a_refused_child_takes_neither_its_siblings_nor_its_entry(grown_lake: Lake) -> None:
    refused = rows(
        grown_lake,
        "select table_name, ordinal, array_to_string(failure_reasons, ' ') "
        "from silver.placsp_children_quarantine where entry_id = 'https://example.org/children/1' "
        "order by all",
    )
    assert refused == [
        ("placsp_lots", 2, "LOT_ID_MISSING"),
        ("placsp_results", 1, "RESULT_AMOUNT_NOT_DECIMAL"),
        ("placsp_results", 2, "RESULT_DATE_NOT_A_DATE"),
        ("placsp_winners", 1, "WINNER_WITHOUT_NAME_AND_ID"),
    ]
    of_entry = "where entry_id = 'https://example.org/children/1'"
    assert rows(grown_lake, f"select ordinal, lot_id from silver.placsp_lots {of_entry}") == [(1, "1")]
    assert rows(
        grown_lake,
        "select ordinal, lot_id, tax_exclusive_amount::text, award_date::text, warnings "
        f"from silver.placsp_results {of_entry}",
    ) == [(3, "9", "10.50", "2024-02-29", ["RESULT_LOT_UNKNOWN"])]
    assert rows(grown_lake, f"select party_name from silver.placsp_winners {of_entry}") == [
        ("A winner",)
    ]
    assert len(rows(grown_lake, f"select 1 from silver.placsp_entries {of_entry}")) == 1


def test_a_refused_child_is_a_dead_letter_of_stage_transformation(grown_lake: Lake) -> None:
    letters = rows(
        grown_lake,
        "select error_type, error_message, payload from marts.dead_letters "
        "where stage = 'transformation' and source_file like '%_20240701_090000.atom' order by all",
    )
    assert [kind for kind, *_ in letters] == [
        "LOT_ID_MISSING", "RESULT_AMOUNT_NOT_DECIMAL", "RESULT_DATE_NOT_A_DATE",
        "WINNER_WITHOUT_NAME_AND_ID",
    ]  # fmt: skip
    message, payload = str(letters[1][1]), str(letters[1][2])
    assert "placsp_results 1 of placsp_entries" in message and "record 1" in message
    assert "tax_exclusive_amount is '1.234,56'" in message
    assert "exact decimal" in message and "Correct the payload" in message
    assert '"1.234,56"' in payload


def test_each_rule_of_children_says_whether_it_ran(sample_lake: SampleLake, grown_lake: Lake) -> None:
    def outcomes(lake: Lake) -> dict[object, tuple[object, object]]:
        return {
            code: (outcome, records)
            for code, outcome, records in rows(
                lake,
                "select rule_code, outcome, records from marts.rule_outcomes "
                "where record_type in ('placsp_lots', 'placsp_results') "
                "and batch_id = (select max(batch_id) from bronze.batches)",
            )
        }

    rules = ("LOT_ID_MISSING", "LOT_AMOUNT_NEGATIVE", "RESULT_LOT_UNKNOWN")
    first, second = outcomes(sample_lake.lake), outcomes(grown_lake)
    assert [first[rule] for rule in rules] == [("PASS", 0)] * 3
    # How many golden records each struck is counted where these are told apart.
    assert [second[rule][0] for rule in rules] == ["FAIL"] * 3


def test_parties_are_told_apart(sample_lake: SampleLake) -> None:
    parties = rows(
        sample_lake.lake,
        "select party_id_scheme, party_id, count(*) from silver.placsp_parties "
        "where party_id_scheme <> 'UTE' group by all having count(*) > 1",
    )
    assert parties == []
    roles = rows(sample_lake.lake, "select distinct unnest(party_roles) from silver.placsp_parties")
    assert {role for (role,) in roles} == {"buyer", "superior", "winner"}
