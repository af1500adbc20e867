"""The modules of the pages: their logic under node, their types under TypeScript, their form."""

import pytest

from browser.tools import HERE, TEMPLATES, need_package, node

LOGIC_TESTS = sorted(path.name for path in HERE.glob("*.test.mjs"))


@pytest.mark.parametrize("name", LOGIC_TESTS)
def test_logic(name):
    ran = node("--test", name)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("project", ["tsconfig.json", "tsconfig.logic.json"])
def test_types(project):
    """All modules against the browser's types; those of pure logic without any of them."""
    need_package("typescript")
    ran = node("node_modules/typescript/bin/tsc", "--project", project)
    assert ran.returncode == 0, ran.stdout


def test_form():
    need_package("prettier")
    patterns = [f"{TEMPLATES}/*.mjs", f"{TEMPLATES}/*.ts", "*.mjs", "*.json"]
    ran = node("node_modules/prettier/bin/prettier.cjs", "--config=package.json", "-l", *patterns)
    assert ran.returncode == 0, f"run `prettier --write` on\n{ran.stdout}{ran.stderr}"
    wide = [
        f"{path.name}:{n}"
        for path in (*TEMPLATES.iterdir(), *HERE.glob("*.mjs"))
        for n, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert wide == []
