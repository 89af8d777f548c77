"""Runs every block of README.md, in their order, against nodes that play a cluster."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake import Node, beside

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
CA = Path(__file__).parent / "ca.pem"


def replaced(text: str, nodes: list[Node], secret: Path) -> str:
    for number, node in enumerate(nodes, 1):
        text = text.replace(f"10.0.0.{number}:8080", node.addr)
    assert "10.0.0." not in text
    return text.replace("/run/secrets/isotone", str(secret)).replace("/etc/isotone/ca.pem", str(CA))


def test_python_blocks(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    blocks = [text for language, text in BLOCKS if language == "python"]
    assert len(blocks) >= 10
    names: dict[str, Any] = {}
    with beside(3) as nodes:
        nodes[0].time += 1 << 40
        for text in blocks:
            source = replaced(text, nodes, secret)
            code = compile(source, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

            async def block(code: Any = code) -> None:
                result = eval(code, names)
                if inspect.isawaitable(result):
                    await result

            asyncio.run(asyncio.wait_for(block(), 60))


@pytest.mark.skipif("DIST" not in os.environ, reason="check.sh builds the distributions, and runs this with them")
def test_shell_blocks(tmp_path: Path) -> None:
    blocks = [text for language, text in BLOCKS if language == "sh"]
    assert blocks == ["pip install isotone\n"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path)], check=True)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": os.environ["DIST"]}
    environment.pop("PYTHONPATH", None)
    subprocess.run(["sh", "-ec", blocks[0]], check=True, env=environment)
    shown = subprocess.run(
        ["python", "-c", "import isotone; print(isotone.__version__, isotone.__file__)"],
        check=True, env=environment, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert shown.stdout.startswith("0.1.0 " + str(tmp_path))


def test_all_blocks_are_run() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
