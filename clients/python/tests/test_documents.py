"""The examples of the README and the guides run, and the reference is what the code says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from tenure.testing import DevServer


def examples(document: str) -> "list[str]":
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def run(code: str, server: DevServer) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TENURE_ADDR": server.address}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_examples_of_the_readme_run(server: DevServer) -> None:
    threads, asynchronous = examples("README.md")[:2]
    assert re.fullmatch(r"held with token \d+\nstop\nmigrate\nstart\n", run(threads, server))
    assert re.fullmatch(r"held with token \d+\n", run(asynchronous, server))


def test_every_call_of_the_readme_exists(server: DevServer) -> None:
    locks, more = examples("README.md")[2:4]
    more = re.sub(r"^for (.*)$", r"for \1 break", more.replace("...  ", "").replace(": ...", ":"), flags=re.MULTILINE)
    more = re.sub(r":( +#.*)? break$", ": break", more, flags=re.MULTILINE)
    watched = more.replace("for batch in client.watch", "client.put('jobs/1', '1')\nfor batch in client.watch")
    watched = watched.replace("prefix=True)", "prefix=True, from_revision=1)")
    head = "import tenure\nclient = tenure.Client.from_env()\n"
    run(head + locks + "\nguard.release()\nhourly.release()\nreport()\n" + watched + "\nclient.close()", server)


@pytest.mark.parametrize("document", ["docs/cron.md", "docs/migrations.md"])
def test_the_first_example_of_a_guide_runs(server: DevServer, document: str) -> None:
    assert run(examples(document)[0], server)


def test_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_the_reference_is_what_the_code_says() -> None:
    for library in ("celery", "apscheduler", "django"):
        pytest.importorskip(library)
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stderr


def test_files_do_one_job_and_say_which() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        lines = path.read_text().splitlines()
        assert lines[0].startswith('"""'), path
        assert len(lines) <= 480, f"{path} has {len(lines)} lines"
    assert Path(ROOT / "src" / "tenure" / "py.typed").exists()
