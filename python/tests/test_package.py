"""The installed package: the program, the shipped rule file, and what they need to start."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
import tidegate
from tidegate.member import Member


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_program_is_in_this_environment_and_of_this_version() -> None:
    assert str(tidegate.find_binary()).startswith(sys.prefix)
    version = importlib.metadata.version("tidegate")
    assert version == importlib.metadata.version("scrapy-tidegate")
    for command in ([str(tidegate.find_binary())], [sys.executable, "-m", "tidegate"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.split()[:2] == ["tidegate", version]


def test_the_shipped_rule_file_is_good_and_starts(tmp_path: Path) -> None:
    text = resources.files("tidegate").joinpath("tidegate.yaml").read_text()
    rule_file = tmp_path / "tidegate.yaml"
    rule_file.write_text(text)
    done = run("check", str(rule_file))
    assert done.returncode == 0, done.stderr
    with Member([{"name": "default", "match": "*", "rate": "3/s"}]) as member:
        assert member.status()["ready"] is True


def test_the_exit_code_is_the_programs() -> None:
    assert run("check", "/nowhere.yaml").returncode == 2


def test_a_program_that_is_nowhere_is_an_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEGATE_BIN", "/opt/tidegate")
    assert tidegate.find_binary() == Path("/opt/tidegate")
    monkeypatch.delenv("TIDEGATE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda *_, **__: str(tmp_path))
    with pytest.raises(tidegate.BinaryNotFoundError, match="pip install tidegate"):
        tidegate.find_binary()
    (tmp_path / "tidegate").touch(0o700)
    assert tidegate.find_binary() == tmp_path / "tidegate"
