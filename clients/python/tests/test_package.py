"""The wheel and the sdist are built, installed into an empty environment, and hold a lock there."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from tenure.testing import DevServer

pytest.importorskip("build")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return out


def test_the_wheel_has_the_types_and_nothing_of_the_tests(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "tenure/py.typed" in names and "tenure/aio/client.py" in names
    assert not [name for name in names if "test_" in name]
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert required == ["Requires-Dist: websockets>=13"]
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        assert any(name.endswith("tests/test_locks.py") for name in sdist.getnames())


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_is_installed_into_an_empty_environment_and_locks(built: Path, tmp_path: Path, server: DevServer, kind: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(next(built.glob(kind)))]
    subprocess.run(install, check=True, timeout=180)
    code = "import tenure\nwith tenure.Client.from_env().lock('installed') as guard: print(guard.token)"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", code],
        env={**env, "TENURE_ADDR": server.address},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr
