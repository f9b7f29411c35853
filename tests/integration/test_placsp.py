"""PLACSP: what an entry holds many of, and what becomes of it."""

from __future__ import annotations

import pytest
from conftest import SampleLake, rows

from ingest.lake import Lake

# Elements that are one row each of a table, wherever they stand.
ELEMENTS = {
    "placsp_lots": "<cac:ProcurementProjectLot>",
    "placsp_results": "<cac:TenderResult>",
    "placsp_winners": "<cac:WinningParty>",
    "placsp_cpv": "<cac:RequiredCommodityClassification>",
    "placsp_modifications": "<cac:ContractModification>",
    "placsp_consultations": "<cac-place-ext:PreliminaryMarketConsultationStatus>",
}


@pytest.mark.parametrize("table", ELEMENTS)
def test_every_element_is_a_child(sample_lake: SampleLake, table: str) -> None:
    # Counted in the text of accepted records, by other code than the parser's.
    element = ELEMENTS[table]
    [(counted,)] = rows(
        sample_lake.lake,
        "select coalesce(sum((length(payload) - length(replace(payload, "
        f"'{element}', ''))) // {len(element)}), 0)::int from bronze.placsp_entries "
        "where _record_id in (select record_id from silver.placsp_entries_children)",
    )
    [(children,)] = rows(
        sample_lake.lake,
        f"select coalesce(sum(len({table})), 0)::int from silver.placsp_entries_children",
    )
    assert children == counted
    if table != "placsp_modifications":
        assert counted, "the samples hold some"


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
