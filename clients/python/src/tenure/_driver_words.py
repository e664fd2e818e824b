"""Turns durations, exceptions, losses and views into the words of the driver protocol (`clients/driver.md`)."""

import asyncio
from typing import Any, Dict, Optional, Union

import tenure

Json = Dict[str, Any]


class Unsupported(Exception):
    """The driver does not have the command."""


class Answered(Exception):
    """An outcome whose time was taken on another thread."""

    def __init__(self, at_us: int, error: BaseException) -> None:
        super().__init__()
        self.at_us = at_us
        self.error = error


def seconds(command: Json, field: str) -> Optional[float]:
    """A duration of a command."""
    return None if command.get(field) is None else command[field] / 1000


def error_of(error: BaseException) -> Json:
    """An exception, in the words of the protocol."""
    shown: Json = {"message": str(error) or type(error).__name__, "effect": getattr(error, "effect", "none")}
    if isinstance(error, tenure.Refused):
        shown.update(kind="refused", reason=error.reason)
    elif isinstance(error, tenure.Lost):
        shown.update(kind="lost", **loss_of(error.loss))
    elif isinstance(error, tenure.Unavailable):
        shown["kind"] = "unavailable"
    elif isinstance(error, tenure.Unknown):
        shown["kind"] = "unknown"
    elif isinstance(error, tenure.Timeout):
        shown["kind"] = "timeout"
    elif isinstance(error, tenure.FenceFailed):
        shown["kind"] = "fence"
    elif isinstance(error, tenure.StillHeld):
        shown.update(kind="timeout", reason="STILL_HELD")
    elif isinstance(error, tenure.Closed):
        shown["kind"] = "closed"
    elif isinstance(error, tenure.Invalid):
        shown.update(kind="invalid", reason=error.reason)
    elif isinstance(error, asyncio.CancelledError):
        shown["kind"] = "cancelled"
    elif isinstance(error, Unsupported):
        shown["kind"] = "unsupported"
    else:
        shown.update(kind="driver", message=repr(error))
    return shown


def loss_of(loss: tenure.Loss) -> Json:
    """A loss, in the words of the protocol."""
    shown: Json = {"cause": loss.cause}
    if loss.by is not None:
        shown["by"] = loss.by
    if loss.reason is not None:
        shown["reason"] = loss.reason
    return shown


def shown(info: Union[tenure.LockInfo, tenure.Explanation]) -> Json:
    """A lock, in the words of the protocol."""
    answer: Json = {"waiting": info.waiting}
    if info.holders:
        answer["holder"] = {"client": info.holders[0].client, "token": str(info.holders[0].token)}
    return answer


def explained(info: tenure.Explanation) -> Json:
    """An explanation, in the words of the protocol."""
    answer = shown(info)
    answer["ahead"] = len(info.ahead)
    if info.ahead:
        first = info.ahead[0]
        answer["first"] = {"client": first.client, "lease": first.lease, "priority": first.priority}
    if info.drained is not None:
        answer["drained"] = info.drained.reason
    return answer


def past_of(past: tenure.Past) -> Json:
    """A search of the past, in the words of the protocol."""
    # Whether a request has to queue depends on when the release before it arrives.
    events = [event for batch in past for event in batch.events if event.cause != "queued"]
    answer: Json = {"causes": ",".join(event.cause for event in events)}
    if events:
        last = events[-1]
        answer["last"] = {"name": last.name, **{key: last.detail.get(key) for key in ("client", "by", "reason", "token")}}
    return answer


def change_of(revision: int, event: tenure.Event) -> Json:
    """A change, in the words of the protocol."""
    change: Json = {"revision": str(revision), "cause": event.cause, "name": event.name}
    if event.value is not None:
        change["value"] = event.value.decode(errors="replace")
    if event.token is not None:
        change["token"] = str(event.token)
    return change
