"""The guide's fence in a real PostgreSQL: a lower token is refused in the transaction. Left out where there is none."""

import os
import re
import shutil
import signal
import socket
import subprocess
import textwrap
import time
from pathlib import Path
from typing import Iterator, List

import pytest
from conftest import ROOT

from tenure import Client

psycopg = pytest.importorskip("psycopg")
sqlalchemy = pytest.importorskip("sqlalchemy")

MIGRATION = ROOT.parents[1] / "crates" / "fence" / "src" / "postgres.sql"


def programs() -> "Path | None":
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(it) for it in [shutil.which("initdb")] if it]
    return found[-1].parent if found else None


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    bin_dir = programs()
    if bin_dir is None or not MIGRATION.exists():
        pytest.skip("there is no PostgreSQL here")
    data = tmp_path_factory.mktemp("postgres")
    # PostgreSQL does not run as root.
    user: List[str] = []
    if os.geteuid() == 0:
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        os.chown(data, 65534, 65534)
        for parent in data.parents:
            if str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
    subprocess.run(
        [*user, str(bin_dir / "initdb"), "-D", str(data / "db"), "-U", "test", "-A", "trust", "--no-sync"],
        check=True,
        capture_output=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*user, str(bin_dir / "postgres"), "-D", str(data / "db"), "-p", str(port), "-k", str(data), "-h", "127.0.0.1", "-F"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"host=127.0.0.1 port={port} user=test dbname=postgres"
    deadline = time.monotonic() + 30
    while True:
        try:
            with psycopg.connect(address, autocommit=True) as db:
                db.execute(MIGRATION.read_text())
                db.execute("create table ledger (id bigint primary key, paid bool)")
                db.execute("insert into ledger values (7, false)")
            break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.1)
    yield address
    # A fast shutdown: it does not wait for connections.
    server.send_signal(signal.SIGINT)
    server.wait(20)


def guide(words: str) -> str:
    """The block of the guide with these words."""
    text = (ROOT / "docs" / "fence.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    (found,) = [block for block in blocks if words in block]
    return found


def test_a_transaction_with_a_lower_token_does_nothing(client: Client, database: str) -> None:
    old = client.lock("ledger").acquire()
    old_token = old.token
    old.release()
    with client.lock("ledger") as guard, psycopg.connect(database) as db:
        with db.transaction():
            db.execute("select tenure_fence.pass(%s, %s)", ("ledger", guard.token))
            db.execute("update ledger set paid = true where id = %s", (7,))
        with pytest.raises(psycopg.errors.DatabaseError) as refused, db.transaction():
            db.execute("select tenure_fence.pass(%s, %s)", ("ledger", old_token))
            db.execute("update ledger set paid = false where id = %s", (7,))
        assert refused.value.sqlstate == "TF412"
        row = db.execute("select paid from ledger where id = 7").fetchone()
    assert row == (True,)


def test_the_session_of_the_guide_passes_the_fence_in_every_transaction(client: Client, database: str) -> None:
    import tenure

    engine = sqlalchemy.create_engine("postgresql+psycopg://?" + "&".join(database.split()))
    with psycopg.connect(database) as db:
        db.execute("update ledger set paid = false")
    space = {"tenure": tenure, "client": client, "engine": engine}
    exec(guide("after_begin"), space)
    engine.dispose()
    with psycopg.connect(database) as db:
        row = db.execute("select exclusive from tenure_fence.floor where lock = 'ledger'").fetchone()
        paid = db.execute("select paid from ledger where id = 7").fetchone()
    assert row == (space["guard"].token,), "the transaction has raised the highest token"
    assert paid == (True,)


def test_the_fence_of_the_guide_is_raised_before_the_guard_is_handed_out(client: Client, database: str) -> None:
    import tenure

    old = client.lock("ledger").acquire()
    old_token = old.token
    old.release()
    space = {"tenure": tenure, "client": client, "psycopg": psycopg}
    exec(guide("def raise_floor").replace('"dbname=ledger"', repr(database)), space)
    with psycopg.connect(database) as db:
        row = db.execute("select exclusive from tenure_fence.floor where lock = 'ledger'").fetchone()
        assert row == (space["guard"].token,), "nothing was written, and the token is the highest seen"
        with pytest.raises(psycopg.errors.DatabaseError) as refused:
            db.execute("select tenure_fence.pass(%s, %s)", ("ledger", old_token))
        assert refused.value.sqlstate == "TF412"
