"""Prints the reference (docs/reference.md) from the docstrings and signatures of the package.

`python tools/reference.py` writes it; `--check` fails if the file is not what the code says.
"""

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, Iterator, List, Tuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

MODULES = [
    "tenure", "tenure.aio", "tenure.errors", "tenure.values", "tenure.testing",
    "tenure.contrib.pytest", "tenure.contrib.celery", "tenure.contrib.apscheduler", "tenure.contrib.django",
]  # fmt: skip


def main() -> None:
    text = "\n".join(lines()).rstrip() + "\n"
    path = ROOT / "docs" / "reference.md"
    if "--check" in sys.argv:
        if path.read_text() != text:
            sys.exit("docs/reference.md is not what the code says: python tools/reference.py")
    else:
        path.write_text(text)


def lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "<!-- Printed from the code: python tools/reference.py -->"
    yield ""
    yield "Durations are seconds. Tokens and revisions are integers; leases are decimal strings."
    told = set()
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            sys.exit(f"{name} needs a library that is not installed: {error}")
        yield from ["", f"## {name}", "", clean(module)]
        if name == "tenure":
            yield from options()
        for item_name, item in items(module):
            if id(item) in told:
                continue
            told.add(id(item))
            yield from about(item_name, item)


def items(module: Any) -> Iterator[Tuple[str, Any]]:
    names = getattr(module, "__all__", None) or [
        name for name, it in vars(module).items() if getattr(it, "__module__", "") == module.__name__ and name[0] != "_"
    ]
    for name in sorted(names):
        item = getattr(module, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            yield name, item


def options() -> Iterator[str]:
    from tenure import _options

    yield from ["", "### Options of a lock", ""]
    for kind in (_options.CampaignOptions, _options.PoolOptions, _options.LockOptions):
        source = inspect.getsource(kind).splitlines()
        for at, line in enumerate(source):
            if ": " in line and not line.strip().startswith('"') and not line.startswith("class"):
                text = source[at + 1].strip().strip('"')
                yield f"- `{line.strip()}` {text}"


def about(name: str, item: Any) -> Iterator[str]:
    if inspect.isfunction(item):
        yield from ["", f"### {name}{signature(item)}", "", clean(item)]
        return
    bases = [base.__name__ for base in item.__bases__ if base.__module__.startswith("tenure") and base.__name__[0:4] != "Base"]
    yield from ["", f"### {name}" + (f" ({', '.join(bases)})" if bases else ""), "", clean(item)]
    members: List[str] = []
    for member, value in sorted(all_members(item).items()):
        if isinstance(value, property):
            members.append(f"- `{member}`: {first_line(value.fget)}")
        elif isinstance(value, (classmethod, staticmethod)):
            members.append(f"- `{member}{signature(value.__func__)}`: {first_line(value.__func__)}")
        elif inspect.isfunction(value):
            word = "await " if inspect.iscoroutinefunction(value) else ""
            members.append(f"- `{word}{member}{signature(value)}`: {first_line(value)}")
    if members:
        yield ""
        yield from members


def all_members(item: Any) -> dict:
    found: dict = {}
    for base in reversed(item.__mro__):
        if base.__module__.startswith("tenure"):
            found.update({name: it for name, it in vars(base).items() if name[0] != "_"})
    return found


def signature(function: Any) -> str:
    shown = inspect.signature(function)
    kept = [it for name, it in shown.parameters.items() if name not in ("self", "cls")]
    text = ", ".join(
        ("*" if it.kind is it.VAR_POSITIONAL else "**" if it.kind is it.VAR_KEYWORD else "") + one(it) for it in kept
    )
    return f"({text})"


def one(it: inspect.Parameter) -> str:
    return it.name if it.default is it.empty else f"{it.name}={it.default!r}"


def first_line(function: Any) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n")[0].split())


def clean(item: Any) -> str:
    return inspect.getdoc(item) or ""


if __name__ == "__main__":
    main()
