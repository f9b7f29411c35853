"""The report of an inspection: its numbers from written results, its words in four languages."""

import json
import re
import string
from html.parser import HTMLParser
from pathlib import Path

import pytest
from inspected import HOSTILE, results

from ingest.contracts import load_contracts
from ingest.errors import LakehouseError
from ingest.inspection.findings import Findings, recount
from ingest.inspection.letter import letter, shown
from ingest.inspection.report import html, markdown, write_reports
from ingest.inspection.texts import LANGUAGES, load
from ingest.transform import models_dir

HEADINGS = {
    "en": ["What was inferred wrongly", "The three modes", "Quarantined lines"],
    "es": ["Lo que la inferencia dedujo mal", "Los tres modos", "Líneas en cuarentena"],
    "ja": ["推論が間違っている箇所", "3つのモード", "隔離した行"],
    "ko": ["추론이 틀린 곳", "세 가지 모드", "격리한 줄"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("results [1]"))


@pytest.fixture(scope="module")
def findings(folder: Path) -> Findings:
    return recount(folder)


def page(findings: Findings, lang: str) -> tuple[str, str]:
    parts = list(letter(findings, lang))
    return markdown(parts), html(parts, lang)


class Page(HTMLParser):
    """Which elements a page has, whether each is closed, and what it says."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


# --- Numbers


def test_numbers_are_counted_from_what_was_written(findings: Findings) -> None:
    assert (findings.received, findings.clean, findings.quarantined) == (10, 6, 4)
    assert (findings.broken, findings.returned) == (2, 2)
    assert findings.reasons == {"parse": 2, "qty": 2}
    assert (findings.permissive, findings.malformed) == (10, 2)
    assert (findings.dropped, findings.count_only) == (8, 9)
    assert (findings.condition, findings.failed_line) == (
        "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION", "9",
    )  # fmt: skip
    assert findings.failed_text.start == HOSTILE
    assert [(rule.code, rule.records, rule.lines) for rule in findings.rules] == [
        ("CORRUPT_RECORD", 1, (8,)),
        ("QTY_NOT_INTEGER", 1, (9,)),
        ("QTY_MISSING", 1, (12,)),
        ("QTY_BELOW_ONE", 1, (13,)),
    ]
    assert [(c.name, c.values, len(c.examples)) for c in findings.misinferred] == [("qty", 25, 20)]


@pytest.mark.parametrize(
    ("name", "content"),
    [("drop_count.json", {"count_only": 9, "written": 9}), ("width.json", {"7": 11})],
)
def test_results_that_contradict_each_other_give_no_report(
    tmp_path: Path, name: str, content: dict[str, int]
) -> None:
    results(tmp_path / "out")
    (tmp_path / "out" / name).write_text(json.dumps(content))
    with pytest.raises(LakehouseError, match="contradict"):
        recount(tmp_path / "out")


def test_a_refusal_without_a_known_rule_gives_no_report(tmp_path: Path) -> None:
    facts_file = results(tmp_path / "out") / "inspection.json"
    facts = json.loads(facts_file.read_text())
    del facts["rules"][0]
    facts_file.write_text(json.dumps(facts))
    with pytest.raises(LakehouseError, match="first rules: 4 and 3"):
        recount(tmp_path / "out")


# --- Words


def names_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", load()["texts"])
def test_a_text_is_there_in_every_language_with_the_same_names(key: str) -> None:
    texts = load()["texts"][key]
    assert tuple(texts) == LANGUAGES
    assert all(text.strip() for text in texts.values())
    assert len({frozenset(names_in(text)) for text in texts.values()}) == 1, texts


def test_the_rules_of_orders_are_translated_and_no_other_is() -> None:
    contract = load_contracts(models_dir())["orders"]
    refusing = {rule.code for rule in contract.rules if rule.severity != "warn"}
    assert set(load()["rules"]) == {"orders"}
    assert set(load()["rules"]["orders"]) == refusing
    for terms in load()["rules"]["orders"].values():
        assert set(terms) == {"why", "fix"}
        for texts in terms.values():
            assert tuple(texts) == LANGUAGES[1:], "English is the contract's"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_error_of_the_cutter_has_words(lang: str) -> None:
    source = Path("ingest/capture/csv.py").read_text("utf-8")
    classes = set(re.findall(r'^ +"([A-Z]+_[A-Z]+)",$|self\._error\("([A-Z_]+)"', source, re.MULTILINE))
    for name in {either for pair in classes for either in pair if either}:
        assert load()["texts"][name][lang]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_report_has_its_sections_and_numbers(findings: Findings, lang: str) -> None:
    text, _ = page(findings, lang)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS[lang]
    _, inference, modes, quarantined = re.split(r"^## .*$", text, flags=re.MULTILINE)
    assert "| `qty` | `int` | `string` | 25 |" in inference
    assert re.search(r"^\| `PERMISSIVE` \| .* \| 10 \| 2 \| . \|$", modes, re.MULTILINE)
    assert re.search(r"^\| `DROPMALFORMED` \| .* \| 8 \| . \| 9 \|$", modes, re.MULTILINE)
    assert "| 7 | 9 | 8 |" in modes
    assert re.search(r"\b6\b.*\b4\b", quarantined.strip().splitlines()[0])
    assert "| `parse` | 2 |" in quarantined
    for code in ("CORRUPT_RECORD", "QTY_NOT_INTEGER", "QTY_MISSING", "QTY_BELOW_ONE"):
        assert f"### `{code}`" in quarantined
    assert re.search(r"^\| 8 \| .*6.*7.* \| `A7,1,x` \|$", quarantined, re.MULTILINE)
    assert re.search(r"^\| 13 \| `qty`: `-3` \| `é{200}` ….*1000000", quarantined, re.MULTILINE)
    assert "{" not in text


def test_a_record_type_without_translations_speaks_english_in_every_language(tmp_path: Path) -> None:
    findings = recount(results(tmp_path / "out", record_type="parcels"))
    text, said = page(findings, "ko")
    assert "이유: Why QTY\\_MISSING \\<em\\>." in text
    assert '이유: <span lang="en">Why QTY_MISSING &lt;em&gt;.</span>' in said


def test_a_sound_file_gets_thanks_and_no_list(tmp_path: Path) -> None:
    text, said = page(recount(results(tmp_path / "out", sound=True)), "en")
    assert "There is nothing to mend." in text
    assert "Every column was inferred as agreed." in text
    assert "FAILFAST found nothing to stop at." in text
    assert "###  " not in text and "QTY" not in text
    assert Page(said).all("svg")


# --- What values do


def test_a_value_is_shown_on_one_line_in_which_nothing_acts() -> None:
    assert shown("a\r\nb\tc\x00\u202ed\x1b[31m") == "a\\x0d\\nb\\tc\\x00\\u202ed\\x1b[31m"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_of_a_value_acts_in_the_page(findings: Findings, lang: str) -> None:
    _, text = page(findings, lang)
    found = Page(text)
    assert not found.all("script") and not found.all("b") and not found.all("i")
    assert "<script>alert(1)</script>|`x`\\x00\\u202egnp\\x0d\\nnext & 'last'" in found.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    assert len(text) < 100_000, "long values are shortened"


def test_nothing_of_a_value_acts_in_markdown(findings: Findings) -> None:
    text, _ = page(findings, "en")
    code = "``<script>alert(1)</script>\\|`x`\\x00\\u202egnp\\x0d\\nnext & 'last'``"
    assert f"| 9 | `qty`: {code} | {code} |" in text
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script" not in outside and "<b>" not in outside
    assert len(text) < 20_000


# --- The page as a page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_needs_nothing_and_can_be_read_aloud(findings: Findings, lang: str) -> None:
    _, text = page(findings, lang)
    found = Page(text)
    assert found.all("html") == [{"lang": lang}]
    assert not [tag for tag in ("img", "link", "iframe", "script") if found.all(tag)]
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert [tag for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)][:3] == ["h1", "h2", "h2"]
    assert len(found.all("caption")) == len(found.all("table")) > 6
    assert all(cell.get("scope") in ("col", "row") for cell in found.all("th"))
    charts = found.all("svg")
    ids = {attributes.get("id") for _, attributes in found.elements}
    assert len(charts) == 2
    for chart in charts:
        assert chart["role"] == "img"
        assert set(str(chart["aria-labelledby"]).split()) <= ids
    assert found.text.count("6: 1; 7: 9") == found.text.count("parse: 2; qty: 2") == 1
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_both_files_are_written(findings: Findings, tmp_path: Path) -> None:
    write_reports(findings, "ja", tmp_path)
    assert (tmp_path / "report.md").read_text("utf-8").startswith("# `orders <b>&.csv` の検査報告\n")
    assert "<title>orders &lt;b&gt;&amp;.csv の検査報告</title>" in (tmp_path / "report.html").read_text(
        "utf-8"
    )
