"""Requests that are repeated have the same id, against a member that loses answers on purpose."""

import json
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest
from websockets.sync.server import Server, serve

import tenure
from tenure import Client, _plant

Json = Dict[str, Any]


class FakeMember:
    """Answers requests as told by `answer`: with an answer, or with `None`, which ends the connection."""

    def __init__(self, answer: Callable[[Json, int], Optional[Json]]) -> None:
        self._answer = answer
        self.seen: List[Json] = []
        self.hellos: List[Json] = []
        self._server: Server = serve(self._serve, sock=socket.create_server(("127.0.0.1", 0)))
        self.address = f"127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _serve(self, connection: Any) -> None:
        for text in connection:
            message = json.loads(text)
            if "hello" in message:
                self.hellos.append(message)
                connection.send(json.dumps({"welcome": self.welcome()}))
            for request in message.get("requests", []):
                self.seen.append(request)
                answer = self._answer(request, len(self.seen))
                if answer is None:
                    connection.close()
                    return
                connection.send(json.dumps({"revision": "9", "answers": [{"id": request["id"], **answer}]}))

    @staticmethod
    def welcome() -> Json:
        header = {"cluster_id": "1", "member_id": "1", "raft_term": "1", "revision": "1"}
        return {
            "header": header,
            "member": "a",
            "epoch": 1,
            "incarnation": "1",
            "in_flight_max": 64,
            "requests_per_message_max": 16,
            "message_bytes_max": 1000000,
            "leader": {"member_id": "1", "name": "a", "address": "-"},
        }

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture
def member(request: pytest.FixtureRequest) -> Iterator[FakeMember]:
    member = FakeMember(request.param)
    yield member
    member.close()


def drop_first(request: Json, number: int) -> Optional[Json]:
    if number == 1:
        return None
    if "put" in request:
        return {"put": {"key": "k", "version": 1, "created": "9"}}
    if "acquire" in request:
        lease = {"lease": request["acquire"]["new_lease"]["lease"], "created": "8", "ttl_ms": 15000}
        return {"acquired": {"acquired": True, "token": "5", "lease": lease, "lease_created": "8", "place": "1"}}
    if "force" in request:
        return {"forced": {"left_ms": 0, "lock": "a"}}
    return {"revoked": {}}


@pytest.mark.parametrize("member", [drop_first], indirect=True)
def test_a_write_is_repeated_under_the_same_id(member: FakeMember) -> None:
    client = Client(member.address)
    assert client.put("k", "v") == 1
    first, second = member.seen
    assert first["idempotency_key"] == second["idempotency_key"] and first["put"] == second["put"]
    client.close()


@pytest.mark.parametrize("member", [drop_first], indirect=True)
def test_a_planted_retry_without_id_is_seen(member: FakeMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plant, "retry_without_id", True)
    client = Client(member.address)
    client.put("k", "v")
    first, second = member.seen
    assert first["idempotency_key"] != second["idempotency_key"]
    client.close()


@pytest.mark.parametrize("member", [drop_first], indirect=True)
def test_a_lock_is_asked_for_again_under_the_same_lease(member: FakeMember) -> None:
    client = Client(member.address)
    with client.lock("a") as guard:
        assert guard.token == 5
    first, second, revoke = member.seen
    assert first["acquire"] == second["acquire"]
    assert revoke["revoke"]["lease"] == guard.lease
    client.close()


@pytest.mark.parametrize("member", [drop_first], indirect=True)
def test_a_force_is_repeated_under_the_same_id(member: FakeMember) -> None:
    client = Client(member.address)
    client.force("a", 5, "stuck")
    first, second = member.seen
    assert first["idempotency_key"] == second["idempotency_key"]
    client.close()


def busy_then_no(request: Json, number: int) -> Optional[Json]:
    if number < 3:
        return {"error": {"reason": "NO_LEADER", "message": "no leader", "effect": "none"}}
    return {"error": {"reason": "FORBIDDEN", "message": "may not", "effect": "none", "lock": "a"}}


@pytest.mark.parametrize("member", [busy_then_no], indirect=True)
def test_what_passes_is_tried_again_and_a_refusal_is_not(member: FakeMember) -> None:
    client = Client(member.address)
    with pytest.raises(tenure.Refused) as refused:
        client.put("k", "v")
    assert (refused.value.reason, refused.value.detail) == ("FORBIDDEN", {"lock": "a"})
    assert len(member.seen) == 3
    client.close()


def unknown(request: Json, number: int) -> Optional[Json]:
    return {"error": {"reason": "UNKNOWN_OUTCOME", "message": "no outcome", "effect": "unknown"}}


@pytest.mark.parametrize("member", [unknown], indirect=True)
def test_an_unknown_outcome_stays_unknown_and_a_question_does_not(member: FakeMember) -> None:
    client = Client(member.address, timeout=0.5)
    with pytest.raises(tenure.Unknown) as raised:
        client.put("k", "v")
    keys = {request["idempotency_key"] for request in member.seen}
    assert keys == {raised.value.request}
    with pytest.raises(tenure.Unavailable):
        client.get("k")
    client.close()


@pytest.mark.parametrize("member", [drop_first], indirect=True)
def test_credentials_go_to_this_machine_in_plain_text_and_nowhere_else(member: FakeMember) -> None:
    key = "tenure_" + "0" * 16 + "_" + "a" * 64
    assert key not in repr(Client(member.address, api_key=key))
    with pytest.raises(tenure.Invalid, match="plain text"):
        Client("10.0.0.1:7450", api_key=key)
    with pytest.raises(tenure.Invalid) as wrong:
        Client(api_key="secret")
    assert "secret" not in str(wrong.value)


def test_settings_come_from_the_environment(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    key = "tenure_" + "0" * 16 + "_" + "a" * 64
    (tmp_path / "key").write_text(key + "\n")
    monkeypatch.setenv("TENURE_ADDR", "127.0.0.1:1, [::1]:2")
    monkeypatch.setenv("TENURE_API_KEY_FILE", str(tmp_path / "key"))
    client = Client.from_env(name="me")
    assert client._settings.addresses == ["127.0.0.1:1", "[::1]:2"] and client.name == "me"
    assert client._settings.credentials.authorization() == f"Bearer {key}"
    monkeypatch.setenv("TENURE_CA", str(tmp_path / "none.pem"))
    with pytest.raises(tenure.Invalid, match=r"none\.pem"):
        Client.from_env()


def small(request: Json, number: int) -> Optional[Json]:
    return {"put": {"key": "k", "version": 1, "created": "9"}}


@pytest.mark.parametrize("member", [small], indirect=True)
def test_a_request_that_no_message_can_carry_is_refused_and_ends_nothing(member: FakeMember) -> None:
    client = Client(member.address)
    with pytest.raises(tenure.Refused) as refused:
        client.put("k", "x" * 1_000_001)
    assert (refused.value.reason, refused.value.effect) == ("TOO_LARGE", "none")
    assert client.put("k", "x") == 1 and len(member.hellos) == 1 and len(member.seen) == 1
    with pytest.raises(tenure.Invalid):
        client.put("k", "\ud800")
    client.close()


def nonsense(request: Json, number: int) -> Optional[Json]:
    return {"renewed": "?"} if number == 1 else {"put": {"key": "k", "version": 1, "created": "9"}}


@pytest.mark.parametrize("member", [nonsense], indirect=True)
def test_an_answer_of_another_kind_says_that_it_may_have_happened(member: FakeMember) -> None:
    client = Client(member.address)
    with pytest.raises(tenure.Refused) as strange:
        client.put("k", "v")
    assert (strange.value.reason, strange.value.effect) == ("STRANGE_ANSWER", "unknown")
    client.close()
