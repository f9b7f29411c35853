import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ingest import environment
from ingest.environment import (
    BROKER_LOCK,
    PROJECT_ROOT,
    build_class_archive,
    cds_options,
    check_disk,
    check_java,
    fetch_jars,
    jar_paths,
    java_executable,
    locked_jars,
)
from ingest.errors import EnvironmentProblemError

CONTENT = b"the content of a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def one_line(error: pytest.ExceptionInfo[EnvironmentProblemError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# Java and disk -----------------------------------------------------------------------------------


def java_that_says(folder: Path, script: str) -> Path:
    """A home with a Java of another age: there is only the one that Spark runs on here."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


def test_the_java_of_this_machine_will_do() -> None:
    check_java()


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("echo 'openjdk version \"1.8.0_392\"' >&2", "is Java 8; Spark needs 17 or newer"),
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11; Spark needs 17"),
        ("echo 'cannot load libjvm.so' >&2; exit 1", "(cannot load libjvm.so)"),
    ],
)
def test_a_java_that_will_not_do_is_named_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, part: str
) -> None:
    home = java_that_says(tmp_path / "old java", script)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(EnvironmentProblemError) as refused:
        check_java()
    assert part in one_line(refused)
    assert str(home) in one_line(refused)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_newer_javas_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    home = java_that_says(tmp_path / "java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    check_java()


def test_a_java_home_without_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblemError) as refused:
        check_java()
    assert f"JAVA_HOME is {tmp_path}" in one_line(refused)


def test_no_java_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblemError) as refused:
        check_java()
    assert "Java was not found" in one_line(refused)


def test_a_full_disk_is_told_before_anything_is_made(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "yet", 1)
    with pytest.raises(EnvironmentProblemError) as refused:
        check_disk(tmp_path / "not" / "yet", 10**18)
    assert "GB are needed. Nothing was written" in one_line(refused)
    assert list(tmp_path.iterdir()) == []


# Jars --------------------------------------------------------------------------------------------


def lock_of(folder: Path, digest: str = DIGEST) -> Path:
    lock = folder / "jars.lock"
    lock.write_text(f"# one jar\norg.example:thing_2.13:1.0 {digest}  # why\n\n")
    return lock


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in a folder, for the real Ivy: with one jar, whose dependency is nowhere."""
    home = tmp_path / "repository" / "org" / "example" / "thing_2.13" / "1.0"
    home.mkdir(parents=True)
    (home / "thing_2.13-1.0.jar").write_bytes(CONTENT)
    (home / "thing_2.13-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>thing_2.13</artifactId><version>1.0</version><dependencies><dependency>"
        "<groupId>org.example</groupId><artifactId>other</artifactId><version>1</version>"
        "</dependency></dependencies></project>"
    )
    pattern = f"{tmp_path}/repository/[organisation]/[module]/[revision]/[module]-[revision]"
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="folder"/><resolvers>'
        f'<filesystem name="folder" m2compatible="true"><ivy pattern="{pattern}.pom"/>'
        f'<artifact pattern="{pattern}.[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("IVY_SETTINGS", str(settings))
    return home


def test_the_locks_of_this_project_go_together() -> None:
    jars = {jar.name: jar.version for jar in locked_jars()}
    assert list(jars)[:2] == ["delta-spark_4.2_2.13", "delta-storage"]
    of_spark = {jar.version for jar in locked_jars() if jar.group == "org.apache.spark"}
    assert of_spark == {metadata.version("pyspark")}
    # A broker runs on its own version of the clients, which it gets from the job's jars.
    broker = [jar for jar in locked_jars(BROKER_LOCK) if jar.group == "org.apache.kafka"]
    assert {jar.version for jar in broker} == {jars["kafka-clients"]}
    assert not set(jars) & {jar.name for jar in broker}


def test_a_lock_line_that_is_none_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"a:b:1 {DIGEST}\na:b:1 abc\n")
    with pytest.raises(EnvironmentProblemError, match="line 2: 'a:b:1 abc' is not"):
        locked_jars(lock)
    with pytest.raises(EnvironmentProblemError, match="is missing"):
        locked_jars(tmp_path / "none.lock")


def test_jars_are_fetched_once_and_then_nothing_is_asked(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = tmp_path / "the jars [of] it"
    jars.mkdir()
    (jars / "thing_2.13-0.9.jar").write_text("an older one")
    (jars / "driver.jsa").write_text("made for it")
    expected = [jars / "thing_2.13-1.0.jar"]
    assert fetch_jars(jars, lock_of(tmp_path)) == expected
    assert list(jars.iterdir()) == expected
    assert expected[0].read_bytes() == CONTENT
    # Without a repository and without a Java the jars that are there still serve.
    shutil.rmtree(repository)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert fetch_jars(jars, lock_of(tmp_path)) == expected
    assert jar_paths(jars, lock_of(tmp_path)) == expected


def test_a_jar_of_another_content_is_refused_and_not_kept(tmp_path: Path, repository: Path) -> None:
    jars = tmp_path / "jars"
    with pytest.raises(EnvironmentProblemError) as refused:
        fetch_jars(jars, lock_of(tmp_path, "0" * 64))
    assert f"sha256 {DIGEST}" in one_line(refused)
    assert list(jars.iterdir()) == []


def test_a_damaged_jar_is_fetched_again(tmp_path: Path, repository: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "thing_2.13-1.0.jar").write_bytes(CONTENT[:5])
    fetch_jars(jars, lock_of(tmp_path))
    assert (jars / "thing_2.13-1.0.jar").read_bytes() == CONTENT


def test_no_network_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="closed"/><resolvers>'
        '<ibiblio name="closed" m2compatible="true" root="http://127.0.0.1:9/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv("IVY_SETTINGS", str(settings))
    jars = tmp_path / "jars"
    with pytest.raises(EnvironmentProblemError) as refused:
        fetch_jars(jars, lock_of(tmp_path))
    assert "the network was not reached" in one_line(refused)
    assert list(jars.iterdir()) == []


def test_linked_jars_stand_under_the_path_to_which_the_class_archive_is_bound(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "thing_2.13-1.0.jar").write_bytes(CONTENT)
    (tmp_path / "linked").symlink_to("jars")
    assert jar_paths(tmp_path / "linked", lock_of(tmp_path)) == [jars / "thing_2.13-1.0.jar"]


def test_missing_jars_are_told_with_the_command_that_brings_them(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as refused:
        jar_paths(tmp_path / "jars", lock_of(tmp_path))
    assert "Run 'make setup' once" in one_line(refused)


# Class data sharing ------------------------------------------------------------------------------


def start_java(options: list[str], *more: str) -> str:
    told = subprocess.run(
        [java_executable(), *options, *more], capture_output=True, text=True, check=True
    )
    return told.stdout


def test_a_class_archive_is_built_used_and_passed_over_when_it_does_not_fit(
    tmp_path: Path,
) -> None:
    jars = tmp_path / "a folder"
    assert cds_options(jars) == []
    ivy = str(environment._ivy())
    arguments = ["-cp", ivy, "org.apache.ivy.Main", "-version"]
    archive = build_class_archive(lambda options: start_java(options, *arguments) and None, jars)
    assert list(jars.iterdir()) == [archive]
    plain = start_java([], *arguments)
    assert start_java(cds_options(jars), *arguments) == plain
    loaded = start_java([*cds_options(jars), "-Xlog:class+load"], *arguments)
    assert "org.apache.ivy.Main source: shared objects file (top)" in loaded
    other = shutil.copy(ivy, tmp_path / "other.jar")
    arguments[1] = str(other)
    assert start_java(cds_options(jars), *arguments) == plain


def test_a_session_that_leaves_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError, match="wrote no class archive"):
        build_class_archive(lambda options: None, tmp_path)
    assert list(tmp_path.iterdir()) == []


# make --------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What set-up reads of this checkout, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "jars.lock", "pyproject.toml"):
        shutil.copy(PROJECT_ROOT / name, folder)
    for name in ("ingest", "requirements"):
        shutil.copytree(PROJECT_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def make(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # Not what the make that may run these tests hands down.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "PIP_", "UV_"))
        and name not in ("INPUT", "LAKE", "ARGS", "PYTHON")
    }
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=clone,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def complaint(told: subprocess.CompletedProcess[str]) -> str:
    """The one line that is not make's own."""
    assert told.returncode != 0
    lines = [line for line in told.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(lines) == 1, told.stderr
    return lines[0]


def test_set_up_without_a_python_says_so(clone: Path) -> None:
    told = make(clone, "setup", "PYTHON=/no/python")
    assert "/no/python was not found. Install Python 3.11 or newer" in complaint(told)


def test_set_up_with_an_old_python_says_so(clone: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text(
        '#!/bin/sh\ncase "$*" in --version) echo Python 3.9.1 ;; *version_info*) exit 1 ;; esac\n'
    )
    old.chmod(0o755)
    told = make(clone, "setup", f"PYTHON={old}")
    assert "is Python 3.9.1; 3.11 or newer is needed" in complaint(told)


def test_set_up_without_a_java_says_so_before_it_makes_anything(clone: Path) -> None:
    told = make(clone, "setup", f"PYTHON={sys.executable}", JAVA_HOME="/no/java")
    assert "JAVA_HOME is /no/java, but there is no bin/java in it" in complaint(told)
    assert not (clone / ".venv").exists()


def test_set_up_without_a_network_says_so_and_is_not_taken_for_done(clone: Path) -> None:
    told = make(
        clone,
        "setup",
        f"PYTHON={sys.executable}",
        PIP_INDEX_URL="http://127.0.0.1:9/",
        PIP_NO_CACHE_DIR="1",
    )
    assert "the network was not reached" in complaint(told)
    assert not (clone / ".venv" / ".runtime").exists()


def test_run_hands_on_paths_as_they_were_given(clone: Path) -> None:
    bin_folder = clone / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    command = bin_folder / "lakehouse"
    command.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    command.chmod(0o755)
    (clone / ".jars").mkdir()
    for stamp in (".venv/.runtime", ".jars/.complete", ".jars/.classes"):
        (clone / stamp).touch()
    (clone / "it's a feed").mkdir()
    for name in ("a.csv", "b.csv"):
        (clone / name).touch()

    def given(*settings: str) -> list[str]:
        told = make(clone, "run", *settings)
        assert told.returncode == 0, told.stderr
        return [line[1:-1] for line in told.stdout.splitlines()]

    assert given("INPUT=it's a feed", 'LAKE=my "lake"') == [
        *("run", "--input", "it's a feed", "--lake", 'my "lake"'),
    ]
    both = ["run", "--input", "a.csv", "--input", "b.csv", "--lake", "lake"]
    assert given("INPUT=a.csv b.csv") == both
    assert given("INPUT=*.csv") == both
    assert given() == [
        *("sample", "--out", "samples"),
        *("run", "--input", "samples", "--lake", "lake"),
    ]


def test_bare_make_lists_every_target_by_section(clone: Path) -> None:
    shown = make(clone).stdout
    for word in ("Set-up", "Run", "Prove", "Look", "Tidy", "setup-dev", "docs-serve", "distclean"):
        assert f"\n{word}\n" in shown or f"\n  {word} " in shown


def test_tidying_never_touches_a_lake(clone: Path) -> None:
    for name in ("lake/bronze", ".venv/bin", ".jars", "samples", "dbt_project/target"):
        (clone / name).mkdir(parents=True)
    assert make(clone, "clean").returncode == 0
    assert not (clone / "samples").exists() and not (clone / "dbt_project/target").exists()
    assert (clone / ".venv/bin").exists() and (clone / ".jars").exists()
    assert make(clone, "distclean").returncode == 0
    assert not (clone / ".venv").exists() and not (clone / ".jars").exists()
    assert (clone / "lake/bronze").exists()
