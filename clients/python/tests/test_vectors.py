"""Replays the traces of the Rust client's lease state: every output must be the same."""

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tenure import _lease_state, _loss, _plant
from tenure._clock import Reading
from tenure._lease_state import LeaseState, PendingGrant, TooLate
from tenure._lease_timing import LeaseTiming, LeaseTimingError
from tenure._loss import Loss

VECTORS = Path(os.environ.get("TENURE_VECTORS") or Path(__file__).parents[2] / "vectors")
MEASURES = {
    _loss.UNREACHABLE: "silent",
    _loss.CREDENTIALS_REFUSED: "silent",
    _loss.STALLED: "late",
    _loss.SUSPENDED: "suspended",
}
SAY = {_lease_state.CONFIRM: "stopped", _lease_state.RELEASE: "release"}


def play(trace: Dict[str, Any]) -> "str | None":
    """Returns what differs first, or `None`."""
    try:
        timing = LeaseTiming(trace["ttl"], trace.get("window"), trace.get("grace"))
    except LeaseTimingError as refused:
        found = {"refused": refused.what, "least": refused.least_us, "most": refused.most_us}
        return None if all(trace.get(key) == value for key, value in found.items()) else f"refused: {found}"
    times = {key: getattr(timing, f"{key}_us") for key in trace.get("times", {})}
    if trace.get("times") != times:
        return f"times: {times}"
    pending, lease = PendingGrant(timing), None
    for number, step in enumerate(trace["steps"]):
        out: Dict[str, Any] = {}
        now = Reading(step["at"], step["at"] - step.get("slept", 0))
        if step["do"] == "send_grant":
            pending.sent(now)
        elif step["do"] == "granted":
            granted = pending.granted(now)
            if isinstance(granted, TooLate):
                out["too_late"] = granted.after_us
            else:
                lease = granted
        else:
            assert lease is not None
            out.update(act(lease, step, now))
        if lease is not None:
            out.update(shown(lease, now))
        if out != step["out"]:
            return f"step {number} {step}: {out}"
    return None


def act(lease: LeaseState, step: Dict[str, Any], now: Reading) -> Dict[str, Any]:
    do, token = step["do"], int(step.get("token", 0))
    if do == "poll":
        return {"renew": lease.poll(now)}
    if do == "renewing":
        return {"number": lease.renewing(now)}
    if do == "renewed":
        return {"read_holdings": lease.renewed(step["number"], step["ttl"], int(step["changed"]), now)}
    if do == "not_renewed":
        lease.not_renewed(step["number"])
    elif do == "holdings":
        lease.holdings(int(step["revision"]), int(step["changed"]), [int(it) for it in step["holds"]], now)
    elif do == "ended":
        lease.ended(Loss(step["cause"]), now)
    elif do == "lock_granted":
        return because("held", lease.granted(step["lock"], token, int(step["revision"]), now))
    elif do == "taken":
        lease.taken(token, Loss(step["cause"]))
    elif do == "check":
        return {"ok": lease.check(now) is None}
    elif do == "check_lock":
        return because("ok", lease.check_grant(token, now))
    elif do == "stopped":
        lease.stopped(token)
    elif do == "farewells":
        told = [{"say": SAY[say], "lock": lock, "token": str(token)} for token, lock, say in lease.farewells()]
        return {"farewells": told}
    elif do == "give_back":
        return {"release": lease.given_back(token, now)}
    elif do == "end_if_idle":
        return {"ended": lease.end_if_idle()}
    elif do == "credentials_refused":
        lease.credentials_refused()
    else:
        raise AssertionError(f"unknown step {do}")
    return {}


def because(word: str, lost: "Loss | None") -> Dict[str, Any]:
    return {word: True} if lost is None else {word: False, "because": lost.cause}


def shown(lease: LeaseState, now: Reading) -> Dict[str, Any]:
    out: Dict[str, Any] = {"state": lease.standing(now)}
    if lease.loss is not None:
        out["cause"] = lease.loss.cause
        if lease.loss.cause in MEASURES:
            out[MEASURES[lease.loss.cause]] = lease.loss.time_us
    else:
        out.update(due=lease.due, lost_at=lease.lost_at)
    lost = {it.token: it.loss.cause for it in lease.losses()}
    locks = {str(token): lost.get(token, "held") for token in sorted(lease._grants)}
    if locks:
        out["locks"] = locks
    return out


def traces() -> List[Dict[str, Any]]:
    files = sorted(VECTORS.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line]


def test_every_trace_of_the_rust_client_is_replayed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("TENURE_PLANT"):
        # `cargo xtask clients --planted` expects that this fails.
        monkeypatch.setattr(_plant, _plant.named(os.environ["TENURE_PLANT"]), True)
    found = traces()
    assert len(found) >= 500, f"too few traces in {VECTORS}"
    failed = [f"{trace['name']}: {problem}" for trace in found for problem in [play(trace)] if problem]
    print(f"vectors traces={len(found)} failed={len(failed)}")
    assert not failed, "\n".join(failed[:5])


@pytest.mark.parametrize("bug", ["renewal_from_answer", "loss_not_final", "release_while_working", "check_by_timer"])
def test_a_planted_bug_changes_a_trace(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plant, bug, True)
    failed = [trace["name"] for trace in traces() if play(trace)]
    print(f"{bug}: {len(failed)} traces differ, first: {failed[:1]}")
    assert failed
