"""The package as others get it: one version, a wheel and an sdist that are complete, workflows."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import yaml

import oism

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.dependabot": [ROOT / ".github" / "dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def run(*words: object, cwd: Path = ROOT) -> str:
    """Return what a command prints; a failure shows all of it."""
    status, output = outcome(*words, cwd=cwd)
    assert status == 0, output
    return output


def outcome(*words: object, cwd: Path = ROOT, given: str = "") -> tuple[int, str]:
    """Return the exit status of a command and what it prints."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == oism.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## (\d\S*) - (\S+)$", changes, flags=re.MULTILINE)[0]
    assert version == oism.__version__
    assert date == str(citation["date-released"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_schema(schema: str) -> None:
    assert SCHEMAS[schema]
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *SCHEMAS[schema])


def test_schemas_reject_mistakes(tmp_path: Path) -> None:
    wrong = tmp_path / "tests.yml"
    wrong.write_text(WORKFLOWS[-1].read_text(encoding="utf-8").replace("runs-on:", "runs_on:"))
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
    status, output = outcome(*command, "vendor.github-workflows", wrong)
    assert status == 1
    assert "runs_on" in output


def test_workflows_pass_the_linter() -> None:
    """zizmor: least permissions, actions pinned to commits, no injection, no stored credentials."""
    zizmor = Path(sysconfig.get_path("scripts"), "zizmor")
    run(zizmor, "--offline", "--no-progress", "--persona=pedantic", ROOT / ".github")


def test_linter_rejects_an_action_without_a_commit(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    content = WORKFLOWS[-1].read_text(encoding="utf-8")
    (folder / "tests.yml").write_text(re.sub(r"@[0-9a-f]{40} # (v\d)\S*", r"@\1", content))
    zizmor = Path(sysconfig.get_path("scripts"), "zizmor")
    status, output = outcome(zizmor, "--offline", "--no-progress", tmp_path)
    assert status > 10  # zizmor's codes of findings; smaller ones are failures of its own
    assert "unpinned-uses" in output


def test_every_python_of_the_package_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == declared


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.mark.slow
def test_wheel_has_the_package_alone(dist: Path) -> None:
    with zipfile.ZipFile(only(dist, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = HeaderParser().parsestr(
            wheel.read(f"oism-{oism.__version__}.dist-info/METADATA").decode()
        )
    package = ROOT / "src"
    files = {path for path in package.rglob("*") if path.is_file()}
    compiled = {path for path in files if path.suffix == ".pyc"}
    assert names == {path.relative_to(package).as_posix() for path in files - compiled}
    assert {"oism/py.typed", "oism/explorer/app/page.html"} <= names
    assert metadata["Version"] == oism.__version__
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert "## Example" in text
    links = re.findall(r"\]\(([^)]*)\)", text)  # those to files of the repository would be dead
    assert links
    assert all(link.startswith("https://") for link in links), links


@pytest.mark.slow
def test_twine_accepts_both(dist: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())


@pytest.mark.slow
def test_tests_run_in_the_sdist(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = only(tmp_path, "oism-*")
    for name in ("tests", "studies", "benchmarks", "docs", ".github"):
        here = {
            path.relative_to(ROOT)
            for path in (ROOT / name).rglob("*")
            if path.is_file() and path.suffix in {".py", ".md", ".yml", ".json", ".js"}
        }
        ignored = ignored_by_git(here)
        missing = {path for path in here - ignored if not (folder / path).exists()}
        assert not missing
    run(
        *("env", f"PYTHONPATH={folder / 'src'}", sys.executable, "-m", "pytest", "-q"),
        *("-p", "no:cacheprovider", "-m", "not slow", "tests/test_package.py", "tests/core"),
        cwd=folder,
    )


def ignored_by_git(paths: set[Path]) -> set[Path]:
    """Return those paths of the repository that git ignores."""
    _, output = outcome("git", "check-ignore", "--stdin", given="\n".join(map(str, paths)))
    return {Path(line) for line in output.splitlines()}


@pytest.mark.slow
def test_wheel_runs_without_the_repository(dist: Path, tmp_path: Path) -> None:
    """`make check-dist` does the same with dependencies from the index; this needs no network.

    A path in a .pth file adds the packages of this environment, but not its own .pth files, so
    that the repository, which is installed there as editable, is not found.
    """
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    target = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    with zipfile.ZipFile(only(dist, "*.whl")) as wheel:
        wheel.extractall(target)
    (target / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    origin = run(python, "-c", "import oism; print(oism.__file__)", cwd=tmp_path).strip()
    assert Path(origin).is_relative_to(place)
    run(python, "-m", "oism", "demo", "--rows", "500", "-o", "demo", cwd=tmp_path)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    words = "from oism.explorer import page; print(len(page()))"
    assert int(run(python, "-c", words, cwd=tmp_path)) > 10_000
