"""What `import goldimask` offers: each name is there, typed and documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import goldimask

ROOT = Path(__file__).parents[2]
NAMES = sorted(set(goldimask.__all__) - {"__version__"})
DOCUMENTED = re.findall(r"^::: (\S+)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)


def callables(name: str) -> Iterator[Any]:
    """A function, or the constructor and the methods that a class does not inherit."""
    found = getattr(goldimask, name)
    if inspect.isfunction(found):
        yield found
    elif inspect.isclass(found):
        for method, value in vars(found).items():
            public = not method.startswith("_") or method in ("__init__", "__call__")
            own = method == "__init__" or not any(hasattr(base, method) for base in found.__bases__)
            if public and own and inspect.isfunction(value):
                yield value


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_a_type(name: str) -> None:
    for found in callables(name):
        signature = inspect.signature(found)
        for parameter in signature.parameters.values():
            where = f"{found.__qualname__}: {parameter}"
            if parameter.name != "self":
                assert parameter.annotation not in (parameter.empty, "Any", Any), where
        assert signature.return_annotation is not signature.empty, found.__qualname__


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_in_the_reference(name: str) -> None:
    module = getattr(goldimask, name).__module__
    assert {module, f"{module}.{name}"} & set(DOCUMENTED), f"{module}.{name}"


@pytest.mark.parametrize("path", DOCUMENTED)
def test_the_reference_names_what_exists(path: str) -> None:
    module, _, name = path.rpartition(".")
    __import__(path if name.islower() and path.count(".") == 1 else module)
    assert path in sys.modules or hasattr(sys.modules[module], name)


def test_names_are_listed_and_no_others() -> None:
    assert set(dir(goldimask)) == set(goldimask.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = goldimask.nothing  # type: ignore[attr-defined]


def test_the_example_of_the_readme_runs() -> None:
    """As it is printed, in a fresh interpreter."""
    readme = (ROOT / "README.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    assert re.findall(r"^(?:import|from) (\S+)", code, re.MULTILINE) == ["torch", "goldimask"]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 8
