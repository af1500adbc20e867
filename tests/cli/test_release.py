"""What would be published: source and wheel are built, the wheel from the source, and checked.

The metadata is read as the package index reads it (`packaging`, strictly).
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from goldimask import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel made of it)."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.real
def test_the_index_would_accept_the_metadata(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as file:
        name = next(n for n in file.namelist() if n.endswith(".dist-info/METADATA"))
        of_wheel = file.read(name)
    with tarfile.open(sdist) as file:
        found = file.extractfile(f"goldimask-{__version__}/PKG-INFO")
        assert found is not None
        of_sdist = found.read()
    for raw in (of_wheel, of_sdist):
        metadata = Metadata.from_email(raw, validate=True)
        assert (metadata.name, str(metadata.version)) == ("goldimask", __version__)
        assert metadata.license_expression == "Apache-2.0" and metadata.summary
        assert metadata.description_content_type == "text/markdown"
        assert "# goldimask" in str(BytesParser().parsebytes(raw).get_payload())
        # a dependency by address would be refused by the index
        assert not any(requirement.url for requirement in metadata.requires_dist or [])


@pytest.mark.real
def test_the_source_is_whole_and_the_wheel_is_made_of_it(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt"} <= inside
    assert sdist.stat().st_size < 40e6
    assert not [
        n for n in inside if n.startswith((".venv", "runs/", "site/", "tests/browser/node"))
    ]
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "src" / "goldimask").rglob("*.py")}
    assert modules <= inside
    with zipfile.ZipFile(wheel) as file:
        assert {m.removeprefix("src/") for m in modules} <= set(file.namelist())


def test_the_changelog_has_the_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
