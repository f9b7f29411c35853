"""What the machine must offer: Java, disk space, the locked packages and jars.

Set-up runs this module with the machine's own Python, before any package is installed, so it
imports nothing beyond the standard library at its top.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

from ingest.errors import EnvironmentProblemError, LakehouseError

PROJECT_ROOT = Path(__file__).resolve().parent.parent
VENV = PROJECT_ROOT / ".venv"
JARS_DIR = PROJECT_ROOT / ".jars"
AIRFLOW = PROJECT_ROOT / ".cache" / "airflow"
JARS_LOCK = PROJECT_ROOT / "jars.lock"
BROKER_DIR = PROJECT_ROOT / ".cache" / "kafka"
BROKER_LOCK = PROJECT_ROOT / "requirements" / "kafka_broker.lock"
CLASS_ARCHIVE = JARS_DIR / "driver.jsa"

OLDEST_JAVA = 17
GIGABYTE = 1_000_000_000
# The environment with its development tools takes 1.9 GB, and as much again is downloaded.
SETUP_BYTES = 4 * GIGABYTE
JARS_BYTES = GIGABYTE // 10
ARCHIVE_BYTES = GIGABYTE // 2

_NETWORK_FAULTS = re.compile(
    r"name resolution|name or service not known|nodename nor servname|dns error|unknownhost"
    r"|connection refused|connection reset|connection error|connectexception|network is unreachable"
    r"|noroutetohost|timed out|timeout|error sending request|newconnectionerror|proxyerror"
    r"|failed to establish|server access error|tunnel",
    re.IGNORECASE,
)
_CERTIFICATE_FAULTS = re.compile(r"certificate|unable to find valid certification path", re.IGNORECASE)
_HASH_FAULTS = re.compile(r"do not match the hashes|hash mismatch", re.IGNORECASE)
_DISK_FAULTS = re.compile(r"no space left|os error 28|disk quota", re.IGNORECASE)

# Runs from wherever the environment lies, spaces in the path included: the shell reads the first
# two lines and hands the file to the Python beside it, which sees them as one string.
_LAUNCHER = """#!/bin/sh
'''exec' "$(dirname -- "$0")/python" "$0" "$@"
' '''
import sys

from ingest.cli import main

sys.exit(main())
"""


@cache
def pipeline_version() -> str:
    """The version of this package, as its project file says it."""
    text = (PROJECT_ROOT / "pyproject.toml").read_text("utf-8")
    return text.split('version = "', 1)[1].split('"', 1)[0]


# Java and disk -----------------------------------------------------------------------------------


def java_executable() -> Path:
    """Finds the Java that Spark will start: ``JAVA_HOME`` if it is set, else the first on PATH.

    Returns:
        The path of the executable.

    Raises:
        EnvironmentProblemError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise EnvironmentProblemError(
                f"JAVA_HOME is {home}, but there is no bin/java in it. Point JAVA_HOME to a "
                f"JDK {OLDEST_JAVA} or newer, or unset it to use the java on PATH."
            )
        return java
    found = shutil.which("java")
    if found is None:
        raise EnvironmentProblemError(
            f"Java was not found, neither by JAVA_HOME nor on PATH. Spark needs a JDK "
            f"{OLDEST_JAVA} or newer: install one, or point JAVA_HOME to it."
        )
    return Path(found)


def check_java() -> None:
    """Makes sure that Spark will find a Java it can run on.

    Raises:
        EnvironmentProblemError: Java is missing, does not start, or is too old.
    """
    java = java_executable()
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblemError(
            f"{java} does not start ({error}). Install a JDK {OLDEST_JAVA} or newer, or point "
            "JAVA_HOME to one."
        ) from error
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told.stderr + told.stdout)
    if told.returncode != 0 or version is None:
        raise EnvironmentProblemError(
            f"{java} does not say its version ({_last_line(told.stderr)}). Install a JDK "
            f"{OLDEST_JAVA} or newer, or point JAVA_HOME to one."
        )
    if int(version.group(1)) < OLDEST_JAVA:
        raise EnvironmentProblemError(
            f"{java} is Java {version.group(1)}; Spark needs {OLDEST_JAVA} or newer. Install a "
            f"JDK {OLDEST_JAVA}, or point JAVA_HOME to one."
        )


def check_disk(path: Path, need_bytes: int) -> None:
    """Makes sure that there is room before anything is written.

    Args:
        path: Where will be written; it need not exist yet.
        need_bytes: How much room the work takes, in bytes.

    Raises:
        EnvironmentProblemError: There is less.
    """
    place = path.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < need_bytes:
        raise EnvironmentProblemError(
            f"{path}: {free / GIGABYTE:.1f} GB are free on this disk, and "
            f"{need_bytes / GIGABYTE:.1f} GB are needed. Nothing was written: free some space "
            "and run the same command again."
        )


# Jars --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Jar:
    """One line of a lock of jars.

    Attributes:
        group: Maven's group, for example ``io.delta``.
        name: Maven's artifact.
        version: Its version.
        sha256: The digest of the file, 64 hexadecimal digits.
    """

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file in its folder."""
        return f"{self.name}-{self.version}.jar"


def locked_jars(lock: Path = JARS_LOCK) -> list[Jar]:
    """Reads a lock of jars.

    Args:
        lock: The file: ``group:name:version sha256`` on each line, ``#`` begins a comment.

    Returns:
        The jars, in the order of the file.

    Raises:
        EnvironmentProblemError: The file is missing, or a line is not of that form.
    """
    try:
        lines = lock.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise EnvironmentProblemError(
            f"{lock} is missing, so it is unknown which jars are needed. Run from a complete checkout: "
            f"'git checkout {lock.name}' brings it back."
        ) from error
    jars = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        parts = re.fullmatch(r"([^:\s]+):([^:\s]+):([^:\s]+)\s+([0-9a-f]{64})", text)
        if parts is None:
            raise EnvironmentProblemError(
                f"{lock} line {number}: '{text}' is not 'group:name:version sha256'. Correct the "
                f"line, or 'git checkout {lock.name}'."
            )
        jars.append(Jar(*parts.groups()))
    return jars


def jar_paths(directory: Path = JARS_DIR, lock: Path = JARS_LOCK) -> list[Path]:
    """Lists the jars that a Spark session needs on its class path. Touches no network.

    Args:
        directory: The folder that holds them.
        lock: The file that names them.

    Returns:
        Absolute paths without links, in the order of the lock: a class archive is bound to both.

    Raises:
        EnvironmentProblemError: One is missing.
    """
    paths = [directory / jar.file_name for jar in locked_jars(lock)]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise EnvironmentProblemError(
            f"Jars of {lock.name} are not in {directory} ({', '.join(missing)}). Run 'make setup' once "
            "with a network; after that none is needed."
        )
    return [path.resolve() for path in paths]


def fetch_jars(directory: Path = JARS_DIR, lock: Path = JARS_LOCK) -> list[Path]:
    """Brings the locked jars into the project, once.

    The Ivy that ships inside pyspark fetches them from the repository it knows by itself, or from
    those in the settings file that ``IVY_SETTINGS`` names. Nothing reaches ``directory`` before
    its digest agrees with the lock.

    Args:
        directory: Where they go.
        lock: The file that names them.

    Returns:
        Their paths, as :func:`jar_paths` gives them.

    Raises:
        EnvironmentProblemError: No Java, no room, no network, or a file of another content.
    """
    wanted = [
        jar
        for jar in locked_jars(lock)
        if not (directory / jar.file_name).is_file() or _sha256(directory / jar.file_name) != jar.sha256
    ]
    if wanted:
        check_java()
        check_disk(directory, JARS_BYTES)
        directory.mkdir(parents=True, exist_ok=True)
        # Beside the place they go to, so that the move is a rename and cannot stop half-way.
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as scratch:
            _fetch_with_ivy(wanted, Path(scratch))
            for jar in wanted:
                _check_digest(Path(scratch) / jar.file_name, jar, lock)
            for jar in wanted:
                (Path(scratch) / jar.file_name).replace(directory / jar.file_name)
        # Made for the jars that were there before.
        (directory / CLASS_ARCHIVE.name).unlink(missing_ok=True)
    named = {jar.file_name for jar in locked_jars(lock)}
    for stale in directory.glob("*.jar"):
        if stale.name not in named:
            stale.unlink()
    return jar_paths(directory, lock)


def _fetch_with_ivy(jars: Sequence[Jar], scratch: Path) -> None:
    """Downloads jars into ``scratch``, each without its dependencies."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="default->master"/>'
        for jar in jars
    )
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0">\n'
        '  <info organisation="lakehouse" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n",
        encoding="utf-8",
    )
    settings = os.environ.get("IVY_SETTINGS")
    command: list[str | Path] = [java_executable(), "-jar", _ivy()]
    if settings:
        command += ["-settings", Path(settings).absolute()]
    # Paths relative to the working folder: Ivy reads brackets in a path as its own tokens.
    command += ["-ivy", "ivy.xml", "-cache", "cache", "-confs", "default"]
    command += ["-retrieve", "[artifact]-[revision].[ext]"]
    try:
        told = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=900, check=False
        )
        output = told.stdout + told.stderr
        complete = told.returncode == 0 and all((scratch / jar.file_name).is_file() for jar in jars)
    except subprocess.TimeoutExpired:
        output, complete = "timed out after 15 minutes", False
    if not complete:
        names = ", ".join(f"{jar.name} {jar.version}" for jar in jars)
        raise EnvironmentProblemError(f"The jars {names}: {_why_not_fetched(output)}")


def _ivy() -> Path:
    """The Ivy inside the pyspark that runs this, or inside the project's environment."""
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [jar for home in homes for jar in sorted((home / "jars").glob("ivy-*.jar"))]
    if not found:
        raise EnvironmentProblemError(
            f"{sys.executable} has no pyspark, whose Ivy fetches jars. Run 'make setup'."
        )
    return found[-1]


def _check_digest(path: Path, jar: Jar, lock: Path) -> None:
    found = _sha256(path)
    if found != jar.sha256:
        raise EnvironmentProblemError(
            f"{jar.file_name} was fetched with sha256 {found}, and {lock.name} says {jar.sha256}. "
            "It was thrown away. Try 'make setup' again; if it stays so, the repository serves "
            "another file: find out why before you change the lock."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Class data sharing ------------------------------------------------------------------------------


def cds_options(directory: Path = JARS_DIR) -> list[str]:
    """Gives the JVM options that let a driver start from the class archive.

    An archive of another Java or other jars is passed over by the JVM, silently. Java 17 also
    passes over every class of a jar whose path has a space in it: such a checkout starts slower.

    Args:
        directory: The folder that may hold ``driver.jsa``.

    Returns:
        The options, unquoted, or none if there is no archive.
    """
    archive = directory / CLASS_ARCHIVE.name
    if not archive.is_file():
        return []
    return [
        f"-XX:SharedArchiveFile={archive.absolute()}",
        "-Xshare:auto",
        # Else the JVM complains about an archive that does not fit, on standard output.
        "-Xlog:disable",
    ]


def build_class_archive(run_session: Callable[[list[str]], None], directory: Path = JARS_DIR) -> Path:
    """Records the classes of one small session, so that later drivers load them at once.

    Args:
        run_session: Runs a session like those to come (same jars, same order) in a JVM of its
            own, started with the options it is given. The JVM may still run when it returns.
        directory: Where the archive goes.

    Returns:
        The path of the archive.

    Raises:
        EnvironmentProblemError: The JVM left no archive.
    """
    check_disk(directory, ARCHIVE_BYTES)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".classes-") as scratch:
        unfinished = Path(scratch) / CLASS_ARCHIVE.name
        run_session(
            [
                f"-XX:ArchiveClassesAtExit={unfinished}",
                # It warns about every class that cannot be shared, several hundred.
                "-Xlog:disable",
            ]
        )
        stop_jvm()
        if not unfinished.is_file():
            raise EnvironmentProblemError(
                f"{java_executable()} wrote no class archive. Sessions work without it and start "
                "slower. To try again, remove .jars/.classes and run 'make setup'."
            )
        return unfinished.replace(directory / CLASS_ARCHIVE.name)


def stop_jvm() -> None:
    """Ends the JVM that pyspark started in this process, if any, and waits until it is gone.

    Stopping a session leaves its JVM running, and a class archive is written as the JVM ends.
    """
    context = importlib.import_module("pyspark").SparkContext
    gateway = context._gateway
    if gateway is None:
        return
    if context._active_spark_context is not None:
        context._active_spark_context.stop()
    process = gateway.proc
    gateway.shutdown()
    # pyspark's JVM ends when its standard input does.
    with suppress(OSError):
        process.stdin.close()
    process.wait(timeout=300)
    context._gateway = context._jvm = None


# Packages ----------------------------------------------------------------------------------------


def install_packages(lock: Path) -> None:
    """Makes ``.venv`` hold exactly what a requirements lock says, and the ``lakehouse`` command.

    Args:
        lock: A requirements file with hashes.

    Raises:
        EnvironmentProblemError: No Java, no room, no network, or a package of another content.
    """
    python = VENV / "bin" / "python"
    bootstrap = PROJECT_ROOT / "requirements" / "bootstrap.lock"
    installed = VENV / ".installed"
    # A lock that git only touched is no reason to ask the network.
    state = f"{_sha256(bootstrap)} {_sha256(lock)}\n"
    if installed.is_file() and installed.read_text(encoding="utf-8") == state and _is_sound(python):
        return
    check_java()
    check_disk(VENV, SETUP_BYTES if not VENV.exists() else GIGABYTE)
    installed.unlink(missing_ok=True)
    if not _is_sound(python):
        _run_step(
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            f"No environment could be made with {sys.executable}",
            "If its venv module is missing, install it (on Debian the package python3-venv)",
        )
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run_step(
        [*pip, "--retries", "2", "--require-hashes", "-r", str(bootstrap)],
        "uv, which installs the other packages, could not be installed",
    )
    uv = [str(VENV / "bin" / "uv"), "pip", "sync", "--quiet", "--python", str(python)]
    _run_step(
        [*uv, "--require-hashes", str(lock)],
        f"The packages of {lock.name} could not be installed",
    )
    _make_command(python)
    installed.write_text(state, encoding="utf-8")


def install_airflow() -> Path:
    """Makes ``.cache/airflow`` hold the Airflow on which the shipped DAG is tested, alone.

    It has pins of its own, so it shares no environment with the project.

    Returns:
        Its Python.

    Raises:
        EnvironmentProblemError: No room, no network, or a package of another content.
    """
    lock = PROJECT_ROOT / "requirements" / "airflow.lock"
    python, installed = AIRFLOW / "bin" / "python", AIRFLOW / ".installed"
    state = f"{_sha256(lock)}\n"
    if installed.is_file() and installed.read_text(encoding="utf-8") == state and python.exists():
        return python
    check_disk(AIRFLOW, GIGABYTE)
    uv = str(VENV / "bin" / "uv")
    _run_step(
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(AIRFLOW)],
        f"No environment could be made with {sys.executable}",
    )
    _run_step(
        [uv, "pip", "sync", "--quiet", "--python", str(python), "--require-hashes", str(lock)],
        f"The packages of {lock.name} could not be installed",
    )
    installed.write_text(state, encoding="utf-8")
    return python


def _is_sound(python: Path) -> bool:
    """Whether an environment can be built upon: it starts, it is new enough and it has pip."""
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    try:
        told = subprocess.run([python, "-c", probe], capture_output=True, check=False)
    except OSError:
        return False
    return told.returncode == 0


def _make_command(python: Path) -> None:
    """Puts the checkout on the environment's path, and the ``lakehouse`` command beside Python.

    This is what an editable install does, without the build back-end it would have to fetch.
    """
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    # Relative, so that a checkout that was moved still finds itself.
    root = os.path.relpath(PROJECT_ROOT, packages.resolve())
    (packages / "lakehouse.pth").write_text(f"{root}\n", encoding="utf-8")
    command = python.parent / "lakehouse"
    command.write_text(_LAUNCHER, encoding="utf-8")
    command.chmod(0o755)


def _run_step(command: Sequence[str], trouble: str, advice: str = "") -> None:
    """Runs one step of the set-up, and says in one line why it failed."""
    environment = dict(os.environ)
    # uv reads its own variables; a mirror given to pip is meant for it as well.
    if "PIP_INDEX_URL" in environment:
        environment.setdefault("UV_DEFAULT_INDEX", environment["PIP_INDEX_URL"])
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if told.returncode != 0 and _CERTIFICATE_FAULTS.search(told.stderr):
        # uv knows the public authorities alone, unless it is told to ask the system, as pip does. A
        # company's proxy has an authority of its own.
        environment.setdefault("UV_SYSTEM_CERTS", "1")
        told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if told.returncode != 0:
        why = _why_not_fetched(told.stdout + told.stderr, advice)
        raise EnvironmentProblemError(f"{trouble}: {why}")


def _why_not_fetched(output: str, advice: str = "") -> str:
    """Turns what an installer printed into one sentence that says how to go on."""
    if _DISK_FAULTS.search(output):
        return "the disk is full. Free some space and run 'make setup' again."
    if _HASH_FAULTS.search(output):
        return (
            "a package was served with another content than the lock says, and was refused. Run "
            "'make setup' again; if it stays so, find out why before you change the lock."
        )
    if _CERTIFICATE_FAULTS.search(output):
        return (
            "a certificate was not accepted. Where a proxy has an authority of its own, name the file "
            "of its certificates, as in SSL_CERT_FILE=<file>, and run 'make setup' again."
        )
    if _NETWORK_FAULTS.search(output):
        return (
            "the network was not reached. It is needed once, at the first set-up: connect and "
            "run 'make setup' again."
        )
    then = f"{advice}, then run" if advice else "Run"
    return f"{_last_line(output)}. {then} 'make setup' again."


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it said nothing"


# Command line ------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one step of ``make setup``.

    Args:
        arguments: ``packages <lock>``, ``jars``, ``classes``, ``airflow`` or ``broker``.

    Returns:
        0, or the exit code of the error that was printed.
    """
    parser = argparse.ArgumentParser(prog="python -m ingest.environment", description=main.__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("packages", help="install a lock into .venv").add_argument("lock", type=Path)
    steps.add_parser("jars", help="fetch the jars of Delta and Kafka into .jars")
    steps.add_parser("classes", help="record the driver's classes, so that sessions start faster")
    steps.add_parser("airflow", help="install the Airflow on which the shipped DAG is tested")
    steps.add_parser("broker", help="fetch the broker of Kafka that tests start")
    given = parser.parse_args(arguments)
    try:
        if given.step == "packages":
            install_packages(given.lock)
        elif given.step == "jars":
            fetch_jars()
        elif given.step == "airflow":
            install_airflow()
        elif given.step == "broker":
            fetch_jars(BROKER_DIR, BROKER_LOCK)
        else:
            build_class_archive(importlib.import_module("ingest.session").warm_up)
    except LakehouseError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
