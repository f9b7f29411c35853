"""Contracts: sound ones load, and each kind of fault is told with file, line and name."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from ingest.cli import cli
from ingest.contracts import check_dataset, feed_of, load_contracts
from ingest.errors import ContractError, InputError
from ingest.retry import RetryPolicy, retry_policy
from ingest.thresholds import Thresholds, thresholds
from ingest.transform import models_dir

SOUND = dedent(
    """\
    version: 2
    sources:
      - name: bronze
        tables:
          - name: parcels
            config:
              meta:
                contract:
                  version: 1.0.0
                  owner: depot
                  format: csv
                  schema: id STRING, weight STRING, sent_at STRING
                  feed:
                    files: ["parcels*.csv"]
                    datasets:
                      - {name: parcels, prefix: parcels}
                      - {name: returns, prefix: parcels_back, feed: feed_77}
                  key: [id]
                  order_by: sent_at
                  fields:
                    - {name: id, from: id, type: text}
                    - {name: weight, from: weight, type: int}
                    - {name: sent_at, from: sent_at, type: timestamp, format: yyyy-MM-dd}
                  rules:
                    - code: NOT_A_VALUE
                      misfit: [weight, sent_at]
                      severity: quarantine
                      on_null: pass
                      stage: schema_validation
                      reason: parse
                      why: A guess would be invented data.
                      fix: Write it as agreed.
                    - code: WEIGHT_BELOW_ONE
                      when: weight < 1
                      severity: warn
                      on_null: pass
                      stage: business_rule
                      reason: weight
                      why: Nothing weighs nothing.
                      fix: Weigh it again.
    """
)
SECOND_RULE_ON_NULL = "on_null: pass\n                  stage: business_rule"
SECOND = "parcels, rule WEIGHT_BELOW_ONE: "


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_contract(text: str) -> Path:
        (tmp_path / "parcels.yml").write_text(text, encoding="utf-8")
        return tmp_path

    return write_contract


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def changed(old: str, new: str) -> str:
    assert SOUND.count(old) == 1, f"{old!r} must be in SOUND once"
    return SOUND.replace(old, new)


def test_a_sound_contract_loads_with_all_it_says(write: Callable[[str], Path]) -> None:
    contract = load_contracts(write(SOUND))["parcels"]

    assert (contract.version, contract.owner, contract.format) == ("1.0.0", "depot", "csv")
    assert contract.schema_ddl == "id STRING, weight STRING, sent_at STRING"
    assert [(f.name, f.spark_type, f.can_misfit) for f in contract.fields] == [
        ("id", "string", False),
        ("weight", "int", True),
        ("sent_at", "timestamp", True),
    ]
    assert [(r.code, r.misfit, r.when, r.stops) for r in contract.rules] == [
        ("NOT_A_VALUE", ("weight", "sent_at"), None, False),
        ("WEIGHT_BELOW_ONE", (), "weight < 1", False),
    ]
    assert contract.rules[1].line == line_of(SOUND, "- code: WEIGHT_BELOW_ONE")


def test_the_contracts_of_the_project_load() -> None:
    contracts = load_contracts(models_dir())

    assert {"orders", "placsp_entries", "placsp_deleted_entries"} <= set(contracts)
    assert "ContractFolderStatus" in contracts["placsp_entries"].schema_ddl
    assert contracts["placsp_entries"].feed == contracts["placsp_deleted_entries"].feed
    assert [c.record_type for c in feed_of(contracts, "ORDERS_2024-05.CSV.GZ")] == ["orders"]


def test_a_file_is_of_the_dataset_with_the_longest_prefix(write: Callable[[str], Path]) -> None:
    contract = load_contracts(write(SOUND))["parcels"]

    assert contract.dataset_of_name("parcels_1.csv") == "parcels"
    assert contract.dataset_of_name("Parcels_back_1.csv") == "returns"
    assert contract.dataset_of_name("letters.csv") is None
    assert contract.dataset_of_feed("urn:feed_77:1") == "returns"
    assert contract.dataset_of_feed(None) is None


def test_the_hashes_tell_what_changed(write: Callable[[str], Path]) -> None:
    before = load_contracts(write(SOUND))["parcels"]
    moved = load_contracts(write("# a comment\n" + SOUND))["parcels"]
    ruled = load_contracts(write(changed("weight < 1", "weight < 2")))["parcels"]
    read = load_contracts(write(changed("id STRING, w", "id STRING, x STRING, w")))["parcels"]

    assert moved.terms_hash == before.terms_hash, "a line number is no part of a contract"
    assert ruled.terms_hash != before.terms_hash
    assert ruled.read_contract == before.read_contract, "a rule does not change how files are read"
    assert read.read_contract != before.read_contract


RULE_FAULTS = {
    "no on_null": (
        changed(SECOND_RULE_ON_NULL, "stage: business_rule"),
        SECOND + "on_null is missing",
    ),
    "unknown on_null": (
        changed(SECOND_RULE_ON_NULL, SECOND_RULE_ON_NULL.replace("pass", "maybe")),
        SECOND + "on_null is missing",
    ),
    "unknown severity": (
        changed("severity: warn", "severity: shrug"),
        SECOND + "severity is 'shrug'. It must be one of warn, quarantine, drop, fail",
    ),
    "unknown stage": (
        changed("stage: business_rule", "stage: somewhere"),
        SECOND + "stage is 'somewhere'",
    ),
    "no why": (changed("why: Nothing weighs nothing.", "why:"), SECOND + "it lacks why or fix"),
    "no fix": (changed("fix: Weigh it again.", "fix: ''"), SECOND + "it lacks why or fix"),
    "volatile function": (
        changed("when: weight < 1", "when: sent_at > Current_Timestamp()"),
        SECOND + "it uses Current_Timestamp, which is not deterministic",
    ),
    "random function": (
        changed("when: weight < 1", "when: rand() < 0.5"),
        SECOND + "it uses rand, which is not deterministic",
    ),
    "neither when nor misfit": (
        changed("when: weight < 1\n                  severity", "severity"),
        SECOND + "it needs either when (a predicate) or misfit",
    ),
    "both when and misfit": (
        changed("when: weight < 1", "when: weight < 1\n                  misfit: [weight]"),
        SECOND + "it needs either when (a predicate) or misfit",
    ),
    "misfit of no field": (
        changed("when: weight < 1", "misfit: [height]"),
        SECOND + "misfit names 'height', which is no field",
    ),
}


@pytest.mark.parametrize("fault", RULE_FAULTS)
def test_a_faulty_rule_is_told_with_file_line_and_name(write: Callable[[str], Path], fault: str) -> None:
    text, said = RULE_FAULTS[fault]
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    place = f"{folder / 'parcels.yml'}:{line_of(text, '- code: WEIGHT_BELOW_ONE')}: "
    assert place + said in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("NOT_A_VALUE", "the code is there twice"),
        ("tooLight", "a code is UPPER_SNAKE and states the fault"),
    ],
)
def test_a_faulty_code_is_told_with_file_line_and_name(
    write: Callable[[str], Path], code: str, said: str
) -> None:
    text = changed("code: WEIGHT_BELOW_ONE", f"code: {code}")
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    line = text[: text.rindex(f"- code: {code}")].count("\n") + 1
    place = f"{folder / 'parcels.yml'}:{line}: parcels, rule {code}: "
    assert place + said in str(caught.value)


FIELD_FAULTS = {
    "uncovered field": (
        changed("misfit: [weight, sent_at]", "misfit: [sent_at]"),
        "field weight: no rule lists it under misfit",
    ),
    "bad type": (changed("type: int", "type: float"), "field weight: type 'float' is unknown"),
    "bad type in an array": (
        changed("type: int", "type: array<float>"),
        "field weight: type 'array<float>' is unknown",
    ),
    "a format for a number": (
        changed("type: int", "type: int, format: yyyy"),
        "field weight: a format is for timestamp and date, not for int",
    ),
    "marks for a text": (
        changed("from: id, type: text", "from: id, type: text, thousands_mark: ' '"),
        "field id: marks are for numbers, not for text",
    ),
    "a mark that is none": (
        changed("type: int", "type: int, thousands_mark: x"),
        "field weight: decimal_sign is '.' and thousands_mark 'x'",
    ),
    "one sign for both": (
        changed("type: int", "type: 'decimal(9,2)', thousands_mark: '.'"),
        "field weight: '.' is decimal sign and thousands mark at once",
    ),
    "timestamp without a format": (
        changed(", format: yyyy-MM-dd", ""),
        "field sent_at: a timestamp needs its format",
    ),
}


@pytest.mark.parametrize("fault", FIELD_FAULTS)
def test_a_faulty_field_is_told_with_file_line_and_name(
    write: Callable[[str], Path], fault: str
) -> None:
    text, said = FIELD_FAULTS[fault]
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    name = said.split(":")[0].removeprefix("field ")
    place = f"{folder / 'parcels.yml'}:{line_of(text, '{name: ' + name)}: parcels, "
    assert place + said in str(caught.value)


def with_feed(line: str) -> str:
    files = 'files: ["parcels*.csv"]'
    indent = re.search(rf"( +){re.escape(files)}", SOUND)[1]
    return changed(files, f"{files}\n{indent}{line}")


READING_FAULTS = {
    "a delimiter of two characters": (
        with_feed('delimiter: "||"'),
        "CSV delimiter is '||'",
    ),
    "a bound of nothing": (
        with_feed("max_record_lines: 0"),
        "CSV max_record_lines is 0",
    ),
    "a bound that is no number": (
        with_feed("max_record_lines: x"),
        "a key of the feed has a value of the wrong kind",
    ),
    "an alias for nothing": (
        with_feed("aliases: {nr: number}"),
        "CSV alias 'nr' stands for 'number', which is no column of the contract",
    ),
    "a schema with types": (
        changed("weight STRING", "weight INT"),
        "schema line 1: type 'INT' of 'weight'",
    ),
    "a key that is no field": (
        changed("key: [id]", "key: [number]"),
        "key or order_by names 'number', which is no field",
    ),
    "an order by no field": (
        changed("order_by: sent_at", "order_by: sent"),
        "key or order_by names 'sent', which is no field",
    ),
}


@pytest.mark.parametrize("fault", READING_FAULTS)
def test_what_cannot_be_read_is_told_with_file_and_line(
    write: Callable[[str], Path], fault: str
) -> None:
    text, said = READING_FAULTS[fault]
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    place = f"{folder / 'parcels.yml'}:{line_of(text, 'version: 1.0.0')}: parcels: "
    assert place + said in str(caught.value)


RETRY = "retry: {window_minutes: 600, delay_minutes: 30, backoff: 1.5, stages: [business_rule]}"
# A rule that refuses, so that there is a stage to name.
REFUSING = changed("severity: warn", "severity: quarantine")


def with_retry(line: str) -> str:
    return REFUSING.replace("order_by: sent_at", f"order_by: sent_at\n{' ' * 14}{line}")


RETRY_FAULTS = {
    "no mapping": ("retry: daily", "version: 1.0.0", "retry is 'daily'. It must be a mapping"),
    "nothing": ("retry:", "version: 1.0.0", "retry is None. It must be a mapping"),
    "an unknown key": (
        RETRY.replace("backoff", "back_off"),
        "retry:",
        "retry, the key 'back_off' means nothing. Keys are window_minutes",
    ),
    "no window": (
        "retry: {delay_minutes: 30}",
        "retry:",
        "retry, window_minutes is None. It must be a whole number of minutes from 1",
    ),
    "a window that is a text": (
        RETRY.replace("600", "10h"),
        "retry:",
        "retry, window_minutes is '10h'. It must be a whole number",
    ),
    "a window without an end": (
        RETRY.replace("600", "9999999999"),
        "retry:",
        "retry, window_minutes is 9999999999",
    ),
    "a delay that is none": (RETRY.replace("30", "0"), "retry:", "retry, delay_minutes is 0"),
    "a delay of yes": (RETRY.replace("30", "true"), "retry:", "retry, delay_minutes is True"),
    "a delay past the window": (
        RETRY.replace("30", "601"),
        "retry:",
        "retry, delay_minutes is 601 and window_minutes 600, so that no record",
    ),
    "a backoff that shrinks": (RETRY.replace("1.5", "0.5"), "retry:", "retry, backoff is 0.5"),
    "a backoff that is no number": (RETRY.replace("1.5", ".nan"), "retry:", "retry, backoff is nan"),
    "stages that are no list": (
        RETRY.replace("[business_rule]", "business_rule"),
        "retry:",
        "retry, stages is 'business_rule'. It must be a list",
    ),
    "a stage of no rule": (
        RETRY.replace("[business_rule]", "[merge]"),
        "retry:",
        "retry, stages names 'merge', and no rule that refuses is of that stage",
    ),
    "a stage that is no text": (
        RETRY.replace("[business_rule]", "[{merge: 1}]"),
        "retry:",
        "retry, stages names {'merge': 1",
    ),
    "no attempt": ("max_attempts: 0", "version: 1.0.0", "max_attempts is 0. It must be a whole"),
    "attempts in words": ("max_attempts: two", "version: 1.0.0", "max_attempts is 'two'"),
}


def assert_told(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, line: str, at: str, said: str
) -> None:
    """A contract with this line is refused with its file, the line of ``at``, and what is said."""
    text = with_retry(line)
    folder = write(text)
    monkeypatch.setattr("ingest.transform.models_dir", lambda: folder)

    result = CliRunner().invoke(cli, ["contract", "check"])

    assert isinstance(result.exception, ContractError), result.output
    place = f"{folder / 'parcels.yml'}:{line_of(text, at)}: parcels: "
    assert place + said in str(result.exception)


@pytest.mark.parametrize("fault", RETRY_FAULTS)
def test_a_faulty_retry_is_told_with_file_and_line(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    assert_told(write, monkeypatch, *RETRY_FAULTS[fault])


def test_a_retry_says_when(write: Callable[[str], Path]) -> None:
    parcels = load_contracts(write(with_retry(f"max_attempts: 5\n{' ' * 14}{RETRY}")))["parcels"]

    policy = retry_policy(parcels.terms)

    assert policy == RetryPolicy(
        timedelta(minutes=600), timedelta(minutes=30), 1.5, frozenset({"business_rule"}), 5
    )
    since = datetime(2024, 5, 1, tzinfo=UTC)
    pauses = [(policy.due_at(since, attempt) - since).total_seconds() / 60 for attempt in (1, 2, 3)]
    assert pauses == [30, 45, 67.5]
    assert policy.due_at(since, 10_000) - since > policy.window, "and it still is an instant"


def test_without_a_retry_there_is_none(write: Callable[[str], Path]) -> None:
    assert retry_policy(load_contracts(write(SOUND))["parcels"].terms) is None


ALERTS = "alerts: {open_above: 1000, share_above: 2.5%, share_from: 50, silent_for: 36h, new_reason: 1w}"
ALERT_FAULTS = {
    "no mapping": ("alerts: all", "version: 1.0.0", "alerts is 'all'. It must be a mapping"),
    "nothing": ("alerts:", "version: 1.0.0", "alerts is None. It must be a mapping"),
    "an unknown key": ("alerts: {open: 1}", "alerts:", "alerts, the key 'open' means nothing. Keys are"),
    "a count in words": (
        "alerts: {open_above: many}",
        "alerts:",
        "alerts, open_above is 'many'",
    ),
    "a count below none": ("alerts: {open_above: -1}", "alerts:", "alerts, open_above is -1"),
    "a count of yes": ("alerts: {open_above: true}", "alerts:", "alerts, open_above is True"),
    "batches of nothing": (ALERTS.replace("50", "0"), "alerts:", "alerts, share_from is 0"),
    "a share without its sign": (
        "alerts: {share_above: 0.2}",
        "alerts:",
        "alerts, share_above is 0.2. It must be a percentage below 100 with its sign, such as 20%",
    ),
    "a share of all": ("alerts: {share_above: 100%}", "alerts:", "alerts, share_above is '100%'"),
    "a stop without its sign": (
        "stop_above: 20",
        "version: 1.0.0",
        "stop_above is 20. It must",
    ),
    "a stop of no batch": (
        "stop_from: 20",
        "version: 1.0.0",
        "stop_from is there and stop_above",
    ),
    "a stop from words": (
        f"stop_above: 20%\n{' ' * 14}stop_from: some",
        "version: 1.0.0",
        "stop_from is 'some'. It must be a whole number from 1",
    ),
    "a span without a unit": (
        "alerts: {silent_for: 36}",
        "alerts:",
        "alerts, silent_for is 36. It must be a number and m, h, d or w",
    ),
    "a span of nothing": ("alerts: {age_above: 0d}", "alerts:", "alerts, age_above is '0d'"),
    "yes where a span is asked": ("alerts: {new_reason: true}", "alerts:", "alerts, new_reason is True"),
    "a bound of no share": (
        "alerts: {share_from: 50}",
        "alerts:",
        "alerts, share_from is there and share_above is not",
    ),
}


@pytest.mark.parametrize("fault", ALERT_FAULTS)
def test_faulty_alerts_are_told_with_file_and_line(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    assert_told(write, monkeypatch, *ALERT_FAULTS[fault])


def test_thresholds_are_what_the_contract_says_and_by_default_none(
    write: Callable[[str], Path],
) -> None:
    assert thresholds(load_contracts(write(with_retry(ALERTS)))["parcels"].terms) == Thresholds(
        open_above=1000,
        share_above=0.025,
        share_from=50,
        silent_for=timedelta(hours=36),
        new_reason=timedelta(weeks=1),
    )
    assert thresholds(load_contracts(write(SOUND))["parcels"].terms) == Thresholds()


def test_formats_and_marks_of_a_field(write: Callable[[str], Path]) -> None:
    text = changed("format: yyyy-MM-dd", "format: [yyyy-MM-dd, dd.MM.yyyy]")
    text = text.replace("type: int", "type: 'decimal(9,2)', decimal_sign: ',', thousands_mark: '.'")
    _, weight, sent_at = load_contracts(write(text))["parcels"].fields

    assert sent_at.formats == ("yyyy-MM-dd", "dd.MM.yyyy")
    assert (weight.decimal_sign, weight.thousands_mark) == (",", ".")


def test_a_key_that_is_there_twice_is_refused(write: Callable[[str], Path]) -> None:
    text = changed("severity: warn", "severity: warn\n                  severity: fail")
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    assert f"{folder / 'parcels.yml'} is no YAML" in str(caught.value)
    assert "the key 'severity' is there twice" in str(caught.value)
    assert f"line {line_of(text, '- code: WEIGHT_BELOW_ONE')}," in str(caught.value)


def test_what_is_no_yaml_is_refused_with_its_line(write: Callable[[str], Path]) -> None:
    text = changed("owner: depot", "owner: [depot")
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    assert f"{folder / 'parcels.yml'} is no YAML" in str(caught.value)
    assert f"line {line_of(text, 'owner: [depot') + 1}," in str(caught.value)


def test_a_schema_file_that_is_not_there_is_named(write: Callable[[str], Path]) -> None:
    text = changed("schema: id STRING, weight STRING, sent_at STRING", "schema_file: parcels.ddl")
    folder = write(text)

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    place = f"{folder / 'parcels.yml'}:{line_of(text, 'version: 1.0.0')}: "
    assert place + "schema_file parcels.ddl of parcels is not beside it" in str(caught.value)


def test_a_schema_file_beside_the_contract_is_its_schema(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "parcels.ddl").write_text("id STRING\n", encoding="utf-8")
    folder = write(
        changed("schema: id STRING, weight STRING, sent_at STRING", "schema_file: parcels.ddl")
    )

    assert load_contracts(folder)["parcels"].schema_ddl == "id STRING"


@pytest.mark.parametrize("key", ["version", "owner", "format", "schema"])
def test_a_key_that_is_missing_is_named(write: Callable[[str], Path], key: str) -> None:
    lines = [
        line
        for number, line in enumerate(SOUND.splitlines(keepends=True))
        if number == 0 or not line.strip().startswith(f"{key}:")
    ]
    folder = write("".join(lines))

    with pytest.raises(ContractError) as caught:
        load_contracts(folder)

    place = f"{folder / 'parcels.yml'}:{line_of(SOUND, 'version: 1.0.0')}: "
    assert place + f"the contract of parcels lacks '{key}'" in str(caught.value)


def test_all_faults_are_told_at_once(write: Callable[[str], Path]) -> None:
    text = changed("severity: warn", "severity: shrug").replace("type: int", "type: float")

    with pytest.raises(ContractError) as caught:
        load_contracts(write(text))

    assert "severity is 'shrug'" in str(caught.value)
    assert "type 'float' is unknown" in str(caught.value)


def test_a_folder_without_a_contract_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.yml").write_text("version: 2\nsources: []\n", encoding="utf-8")

    with pytest.raises(ContractError, match="There is no contract in"):
        load_contracts(tmp_path)


def test_a_dataset_of_no_contract_is_refused_and_the_known_are_named(
    write: Callable[[str], Path],
) -> None:
    contracts = load_contracts(write(SOUND))

    check_dataset(contracts, "returns")
    with pytest.raises(InputError, match=r"'letters' is in no contract.*parcels, returns"):
        check_dataset(contracts, "letters")
