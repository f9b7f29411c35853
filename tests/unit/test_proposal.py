"""Contracts proposed from samples: numbers counted by hand, and files that load as they are."""

import shutil
from pathlib import Path

import pytest
import yaml

from ingest.contracts import Contract, load_contracts
from ingest.errors import InputError
from ingest.proposal import Column, Proposal, propose
from ingest.proposal_files import render, write
from ingest.transform import PROJECT_DIR, models_dir
from ingest.value_types import type_of

SAMPLE = """\
Parcel No.;Sent;Weight;Pieces;Depot;E-Mail;Note
P001;31.05.2024;1.234,50;1;north;a@example.org;"one;two"
P002;01.06.2024;0,75;2;south;b@example.org;
P003;02.06.2024;12,00;-3;north;c@example.org;
P004;03.06.2024;3,10;4;south;d@example.org;
P005;04.06.2024;7,00;5;north;e@example.org;
P006;05.06.2024;8,00;6;south;f@example.org;
P007;06.06.2024;9,25;7;north;g@example.org;
P008;07.06.2024;1,00;8;south;h@example.org;
P009;08.06.2024;2,00;9;north;i@example.org;
P010;09.06.2024;3,00;10;south;j@example.org;
P011;10.06.2024;4,00;11;north;k@example.org;
P012;11.06.2024;5,00;12;south;l@example.org;
P013;12.06.2024;6,00;13;north;m@example.org;
P014;13.06.2024;7,00;14;south;n@example.org;
P015;14.06.2024;8,00;15;north;o@example.org;
P016;15.06.2024;9,00;16;south;p@example.org;
P017;16.06.2024;1,00;17;north;q@example.org;
P018;17.06.2024;2,00;18;south;r@example.org;
P019;18.06.2024;3,00;some;north;s@example.org;
P020;19.06.2024;4,00;20;east;t@example.org;
P021;20.06.2024
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "parcels_2024-06.csv"
    path.write_text(SAMPLE, encoding="utf-8")
    return path


@pytest.fixture
def proposal(sample: Path) -> Proposal:
    return propose("parcels", sample, {}, "depot")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the dbt project without its links."""
    copy = tmp_path / "project"
    shutil.copytree(PROJECT_DIR / "models", copy / "models")
    shutil.copy(PROJECT_DIR / "dbt_project.yml", copy)
    return copy


def column(proposal: Proposal, name: str) -> Column:
    return next(column for column in proposal.columns if column.name == name)


def evidence(column: Column) -> list[str]:
    return [str(item) for item in column.against]


def test_columns_their_types_and_what_speaks_against_stricter_ones(proposal: Proposal) -> None:
    assert proposal.fmt.delimiter == ";"
    assert (proposal.records, proposal.corrupt) == (21, 1)
    assert [(c.name, c.type.label, c.nulls, c.distinct) for c in proposal.columns] == [
        ("parcel_no", "text", 0, 20),
        ("sent", "date (format dd.MM.yyyy)", 0, 20),
        ("weight", "decimal(8,2) (decimal_sign ,, thousands_mark .)", 0, 14),
        ("pieces", "int", 0, 20),
        ("depot", "string", 0, 3),
        ("e_mail", "string", 0, 20),
        ("note", "string", 19, 1),
    ]
    assert evidence(column(proposal, "pieces")) == [
        "int: values refused: 1, for example line 20: 'some'"
    ]
    assert evidence(column(proposal, "weight"))[0] == (
        "int: values refused: 20, for example line 2: '1.234,50'"
    )


def test_names_of_the_file_are_kept_as_aliases(proposal: Proposal) -> None:
    assert proposal.fmt.aliases == {"Parcel No.": "parcel_no", "E-Mail": "e_mail"}


def test_the_key_the_order_and_personal_data(proposal: Proposal) -> None:
    assert proposal.key == ("parcel_no",)
    assert proposal.key_evidence == "20 different keys in 20 records that have one; 0 lack it"
    assert proposal.order_by == "sent"
    assert [(c.name, c.pii) for c in proposal.columns if c.pii] == [("e_mail", "email")]


def test_rules_say_how_many_records_each_would_refuse(proposal: Proposal) -> None:
    struck = {rule.code: str(rule.evidence) for rule in proposal.rules}
    assert struck["CORRUPT_RECORD"] == "refuses: 1, for example line 22"
    assert struck["PIECES_NOT_INT"] == "refuses: 1, for example line 20: 'some'"
    assert struck["PIECES_BELOW_ZERO"] == "flags: 1, for example line 4: '-3'"
    assert struck["PARCEL_NO_MISSING"] == "refuses: 0"
    assert struck["DEPOT_UNKNOWN"] == "flags: 1, for example line 21: 'east'"
    assert "NOTE_MISSING" not in struck, "most records have none"
    assert "E_MAIL_UNKNOWN" not in struck, "a list of personal data would stand in the contract"


def test_no_personal_value_stands_in_the_files(proposal: Proposal) -> None:
    assert "@example.org" not in "".join(render(proposal).values())


def test_what_is_written_loads_as_a_contract(proposal: Proposal, project: Path) -> None:
    written = write(proposal, project)
    contract: Contract = load_contracts(project / "models" / "bronze")["parcels"]
    assert written[0] == contract.path
    assert contract.claims("Parcels_7.CSV.gz")
    assert contract.dataset_of_name("parcels_7.csv") == "parcels"
    fields = {field.name: field for field in contract.fields}
    assert fields["sent"].formats == ("dd.MM.yyyy",)
    assert (fields["weight"].decimal_sign, fields["weight"].thousands_mark) == (",", ".")
    assert contract.feed["aliases"] == {"Parcel No.": "parcel_no", "E-Mail": "e_mail"}
    settings = yaml.safe_load((project / "dbt_project.yml").read_text("utf-8"))
    assert settings["vars"]["record_types"]["parcels"] == {"parcels": ["current"]}
    assert "orders" in settings["vars"]["record_types"]


def test_its_tables_list_the_columns_that_those_of_orders_have(
    proposal: Proposal, project: Path
) -> None:
    """Whatever a table of orders lists beside the fields of orders, this one lists beside its own."""
    write(proposal, project)
    listed: dict[str, list[str]] = {}
    for path in (project / "models").rglob("*.yml"):
        document = yaml.safe_load(path.read_text("utf-8"))
        tables = [t for source in document.get("sources", []) for t in source["tables"]]
        for item in tables:
            listed[f"bronze.{item['name']}"] = [c["name"] for c in item["columns"]]
        for item in document.get("models", []):
            listed[item["name"]] = [c["name"] for c in item["columns"]]
    contracts = load_contracts(project / "models" / "bronze")
    for pattern in ("bronze.{}", "stg_{}", "{}", "{}_judged", "{}_quarantine", "{}_dispositions"):
        own, others = (
            [
                c
                for c in listed[pattern.format(name)]
                if c not in {f.name for f in contracts[name].fields}
            ]
            for name in ("parcels", "orders")
        )
        assert sorted(own) == sorted(others), pattern


def test_nothing_is_overwritten(proposal: Proposal, project: Path) -> None:
    silver = project / "models" / "silver" / "parcels_judged.sql"
    silver.write_text("somebody's work")
    before = sorted(project.rglob("*"))
    with pytest.raises(InputError, match=r"parcels_judged\.sql is there already.*Nothing was written"):
        write(proposal, project)
    assert sorted(project.rglob("*")) == before
    assert silver.read_text() == "somebody's work"


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("orders", "new.csv", "There is a contract of orders already"),
        ("buys", "orders_1.csv", "orders_1.csv is claimed by the contract of orders already"),
        ("Buys", "new.csv", "'Buys' cannot be the name of a record type"),
        ("select", "new.csv", "'select' cannot be the name of a record type"),
        ("buys", "gone.csv", "is no file"),
        ("buys", "bare.csv", "holds no record below its header"),
    ],
)
def test_what_cannot_become_a_contract_is_refused(
    tmp_path: Path, name: str, file: str, said: str
) -> None:
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    (tmp_path / "orders_1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bare.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=said):
        propose(name, tmp_path / file, load_contracts(models_dir()), "desk")


@pytest.mark.parametrize(
    ("texts", "label", "said"),
    [
        (["1", "-20"], "int", "int: values refused: 0"),
        (["12345678901"], "bigint", "bigint: values refused: 0"),
        (["007", "8"], "string", "int: values begin with a zero that it would lose: 1"),
        (["1.5", "22.25"], "decimal(6,2)", "decimal(6,2): values refused: 0"),
        (["1,234", "5,678"], "string", "1,234 may be a thousand or one and a bit"),
        (["01/02/2024", "03/04/2024"], "string", "day and month may stand the other way round"),
        (["01/02/2024", "31/04/2024", "30/04/2024"] * 10, "string", "date"),
        (["2024-05-01", "2024-05-02"], "date", "date: values refused: 0"),
        (["1/2/2024", "13/4/2024"], "string", "instant"),
        (["25/12/2024", "24/12/2024"], "date (format dd/MM/yyyy)", "refused: 0"),
        (["2024-05-01T10:00:00Z"], "instant", "instant: values refused: 0"),
        (["2024-05-01 10:00"], "timestamp (format yyyy-MM-dd HH:mm)", "refused: 0"),
        ([], "string", "no value is there to tell a type from"),
    ],
)
def test_the_type_of_some_values(texts: list[str], label: str, said: str) -> None:
    chosen, against = type_of("thing", list(enumerate(texts, start=2)))
    assert chosen.label == label
    assert any(said in str(item) for item in against), [str(item) for item in against]


def test_several_formats_are_proposed_together() -> None:
    texts = ["2024-05-31 10:00:00"] * 10 + ["31.05.2024 10:00"] * 10
    chosen, _ = type_of("at", list(enumerate(texts)))
    assert chosen.label == "timestamp (format ['yyyy-MM-dd HH:mm:ss', 'dd.MM.yyyy HH:mm'])"


def test_a_pair_of_columns_may_be_the_key(tmp_path: Path) -> None:
    path = tmp_path / "stock_1.csv"
    path.write_text("shop,day,amount\n" + "".join(f"s{i % 5},d{i // 5},{i % 3}\n" for i in range(50)))
    assert propose("stock", path, {}, "desk").key == ("shop", "day")


def test_where_nothing_is_a_key_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stock_1.csv"
    path.write_text("shop,day\n" + "s1,d1\ns2,d1\n" * 20)
    proposal = propose("stock", path, {}, "desk")
    assert proposal.key == ("shop",)
    assert proposal.key_evidence.startswith("NO COLUMN AND NO PAIR IS A KEY")


def test_a_file_without_a_header_and_one_with_names_of_sql(tmp_path: Path) -> None:
    path = tmp_path / "x_1.csv"
    path.write_text("1,2024-01-01\n2,2024-01-02\n")
    proposal = propose("things", path, {}, "desk")
    assert (proposal.fmt.header, [c.name for c in proposal.columns]) == (False, ["column_1", "column_2"])
    path.write_text("order,payload,Straße 1,Año,año\n1,2,3,4,5\n", encoding="utf-8")
    with pytest.raises(InputError, match="names two columns alike: Año, año"):
        propose("things", path, {}, "desk")
    path.write_text("order,payload,Straße 1,Año,注文\n1,2,3,4,5\n", encoding="utf-8")
    names = [c.name for c in propose("things", path, {}, "desk").columns]
    assert names == ["order_value", "payload_value", "strasse_1", "ano", "column_5"]
