"""Queries over HTTP that members and proxies refuse, against a server that answers what the test says."""

import json
import socket
import threading
import time
from typing import Iterator, List, Tuple

import pytest

from tenure import Client, Error, Refused, Unavailable
from tenure.testing import DevServer

Answer = Tuple[int, str, str]
"""A status, headers and a body."""


class Front:
    """Answers searches of the past with these answers in turn, of which the last one stays; passes on everything else."""

    def __init__(self, target: str, answers: List[Answer]) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: List[float] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        head = near.recv(65536)
        if b"history" in head.partition(b"\r\n")[0]:
            status, headers, body = self._answers[min(len(self.asked), len(self._answers) - 1)]
            self.asked.append(time.monotonic())
            near.sendall(f"HTTP/1.1 {status} -\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            near.close()
            return
        far = socket.create_connection(self._target)
        far.sendall(head)
        threading.Thread(target=pass_on, args=(far, near), daemon=True).start()
        pass_on(near, far)


def pass_on(source: socket.socket, to: socket.socket) -> None:
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            to.sendall(data)
    except OSError:
        pass
    source.close()
    to.close()


def refusal(status: int, reason: str, **more: object) -> Answer:
    error = {"reason": reason, "message": "not now", "effect": "none", **more}
    return status, "Content-Type: application/json\r\n", json.dumps({"error": error})


EMPTY: Answer = (200, "", json.dumps({"changes": []}))


@pytest.fixture
def fronts(server: DevServer) -> Iterator[List[Tuple[Front, Client]]]:
    made: List[Tuple[Front, Client]] = []
    yield made
    for front, client in made:
        try:
            client.close(1.0)
        except Error:
            pass
        front.close()


def front(server: DevServer, fronts: List[Tuple[Front, Client]], *answers: Answer) -> Tuple[List[float], Client]:
    front = Front(server.address, list(answers))
    client = Client(front.address, name="queries", timeout=2.0)
    fronts.append((front, client))
    return front.asked, client


def test_a_query_is_asked_again_after_the_time_that_the_answer_names(
    server: DevServer, fronts: List[Tuple[Front, Client]]
) -> None:
    gateway: Answer = (502, "Retry-After: 1\r\n", "<html>")
    asked, client = front(server, fronts, refusal(503, "OVERLOADED", retry_after_ms=300), gateway, EMPTY)
    assert list(client.history("past/x")) == []
    assert len(asked) == 3
    assert asked[1] - asked[0] >= 0.3 and asked[2] - asked[1] >= 1.0


def test_the_pauses_of_a_query_grow(server: DevServer, fronts: List[Tuple[Front, Client]]) -> None:
    asked, client = front(server, fronts, refusal(503, "NO_LEADER"))
    with pytest.raises(Unavailable) as failed:
        client.history("past/x")
    cause = failed.value.__cause__
    assert isinstance(cause, Refused) and cause.reason == "NO_LEADER"
    assert 4 <= len(asked) <= 15


def test_a_query_that_members_refuse_for_now_fails_with_the_refusal_that_says_why(
    server: DevServer, fronts: List[Tuple[Front, Client]]
) -> None:
    no_leader = refusal(503, "NO_LEADER")
    asked, client = front(server, fronts, no_leader, refusal(503, "OVERLOADED", next="use more members"), no_leader)
    with pytest.raises(Refused) as failed:
        client.history("past/x")
    assert (failed.value.reason, failed.value.next) == ("OVERLOADED", "use more members")
    assert len(asked) >= 3
    # There is no use in waiting for longer than the caller does.
    asked, client = front(server, fronts, refusal(429, "QUOTA", retry_after_ms=60_000))
    began = time.monotonic()
    with pytest.raises(Refused) as failed:
        client.history("past/x")
    assert (failed.value.reason, failed.value.retry_after, len(asked)) == ("QUOTA", 60.0, 1)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("answer", "reason", "advice"),
    [
        (refusal(403, "PERMISSION_DENIED", next="ask for the verb read"), "PERMISSION_DENIED", "ask for the verb read"),
        ((404, "", "<html>"), "STRANGE_ANSWER", None),
        ((500, "", '{"error":{}}'), "STRANGE_ANSWER", None),
        ((200, "", "{"), "STRANGE_ANSWER", None),
    ],
)
def test_an_answer_that_repeating_does_not_help_is_final(
    server: DevServer, fronts: List[Tuple[Front, Client]], answer: Answer, reason: str, advice: str
) -> None:
    asked, client = front(server, fronts, answer)
    with pytest.raises(Refused) as failed:
        client.history("past/x")
    assert (failed.value.reason, failed.value.next, len(asked)) == (reason, advice, 1)
