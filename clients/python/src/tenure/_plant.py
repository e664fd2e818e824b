"""Plants one known bug, so that the conformance suite can show that it catches it. Only the driver sets one."""

renewal_from_answer = False
"""A renewal counts from its answer instead of from before it was sent."""
loss_not_final = False
"""A late answer revives a lost lease."""
retry_without_id = False
"""A repeated request has a new id, so that it may take effect twice."""
release_while_working = False
"""A lost lock is given back although its work has not stopped."""
check_by_timer = False
"""`check` believes the timer of the watchdog and does not compare the clock."""

ALL = ("renewal_from_answer", "loss_not_final", "retry_without_id", "release_while_working", "check_by_timer")


_ALIASES = {"count_from_answer": "renewal_from_answer"}


def named(name: str) -> str:
    """The bug of this name, or of this alias."""
    name = _ALIASES.get(name, name)
    if name not in ALL:
        raise ValueError(f"no planted bug is called {name}; there are {', '.join(ALL)}")
    return name


def select(name: str) -> None:
    """Plants the bug of this name."""
    globals()[named(name)] = True
