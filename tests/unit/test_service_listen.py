"""Where the service may listen, what the command says, TLS, and its end; in processes of its own."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trustme

from dbt_streamsql.errors import StreamSqlError
from dbt_streamsql.meta import open_store
from dbt_streamsql.meta.service import Address
from tests.support import patience
from tests.support.meta_service import command, url_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

WITHOUT_FASTAPI = """
import sys
sys.modules["fastapi"] = None
from dbt_streamsql.cli import main
main(["meta", "serve", "--store", "meta.db"])
"""
EVERYWHERE = "0.0.0.0"  # noqa: S104 - without TLS it is refused
TOKEN = "n" * 40


def refused(process: subprocess.Popen[str]) -> str:
    output, _ = patience.communicate(process)
    assert process.returncode == 2, output
    assert "Traceback" not in output
    return output


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        (EVERYWHERE, False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("meta.example", False),
    ],
)
def test_other_hosts_reach_it_by_tls_only(host: str, loopback: bool) -> None:
    Address(host, certificate=Path("c"), key=Path("k")).check()
    assert Address(host).is_loopback is loopback
    for half in ({"certificate": Path("c")}, {"key": Path("k")}):
        with pytest.raises(StreamSqlError, match="both"):
            Address(host, **half).check()
    if loopback:
        Address(host).check()
        return
    with pytest.raises(StreamSqlError) as caught:
        Address(host).check()
    assert caught.value.code == "META_SERVICE"
    assert host in caught.value.given


def test_it_answers_to_the_names_that_it_is_given() -> None:
    assert set(Address().hosts) == {"127.0.0.1", "localhost", "[::1]"}
    assert set(Address("10.0.0.1", names=("meta.example",)).hosts) == {"10.0.0.1", "meta.example"}
    anywhere = set(Address(EVERYWHERE, names=("Meta.Example",)).hosts)
    assert {"meta.example", "localhost", socket.gethostname().lower()} <= anywhere
    assert EVERYWHERE not in anywhere


@pytest.mark.processes
def test_the_command_serves_a_new_store_to_its_user_and_ends_in_order(
    tmp_path: Path,
    running: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path / "cache"))
    process = command(tmp_path, "--store", "warehouse", "--port", "0")
    running.append(process)
    url = url_of(process)
    token = tmp_path / "warehouse" / "streamsql.db.token"
    assert token.stat().st_mode & 0o777 == 0o600
    bearer = {"Authorization": f"Bearer {token.read_text().strip()}"}
    assert httpx.get(f"{url}/ui/").status_code == 200, "the page holds no data"
    for path in ("/ui/api/status", "/metrics"):
        assert httpx.get(url + path).status_code == 401
        assert httpx.get(url + path, headers=bearer).status_code == 200
    store = open_store(url)
    fence = store.acquire()
    assert store.begin(fence).id == 1
    process.send_signal(signal.SIGINT)
    output, _ = patience.communicate(process)
    assert process.returncode == 0, output
    assert output.endswith("MetaService has stopped.\n")
    assert "Traceback" not in output
    assert token.read_text().strip() not in output
    assert "default POST /v1/barriers 201" in output
    assert list((tmp_path / "cache" / "meta").iterdir()) == []
    with pytest.raises(StreamSqlError, match="META_UNREACHABLE"):
        store.last_committed()
    store.close()
    direct = open_store(f"sqlite:///{tmp_path}/warehouse/streamsql.db")
    direct.abort(direct.acquire(), 1)
    direct.close()


@pytest.mark.processes
def test_the_profile_of_a_project_says_what_is_served_and_where(
    tmp_path: Path,
    running: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path / "cache"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    output = f"{{type: streamsql, schema: s, meta: 'http://127.0.0.1:{port}'}}"
    profile = f"shop: {{target: dev, outputs: {{dev: {output}}}}}"
    (tmp_path / "profiles.yml").write_text(profile)
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    options = ("--project-dir", str(tmp_path), "--profiles-dir", str(tmp_path), "--quiet")
    process = command(tmp_path, *options)
    running.append(process)
    assert url_of(process) == f"http://127.0.0.1:{port}"
    open_store(f"http://localhost:{port}").close()
    assert (tmp_path / "warehouse" / "streamsql.db").exists()
    text = refused(command(tmp_path, *options))
    assert "META_SERVICE" in text
    assert "--port" in text


@pytest.mark.processes
def test_tls_with_several_tokens(
    tmp_path: Path, running: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    words = tmp_path / "tokens.yml"
    words.touch(0o600)
    words.write_text(f"tokens: [{{name: nightly, role: run, token: {TOKEN}}}]")
    process = command(
        tmp_path,
        *("--store", "meta.db", "--port", "0", "--host", EVERYWHERE),
        *("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--token-file", "tokens.yml"),
    )
    running.append(process)
    url = url_of(process).replace(EVERYWHERE, "localhost")
    assert url.startswith("https://localhost:")
    with pytest.raises(StreamSqlError, match="CERTIFICATE_VERIFY_FAILED"):
        open_store(url, token=TOKEN)
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http"))
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    assert httpx.get(f"{url}/v1/health", verify=context).json() == {"status": "ok"}
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    store = open_store(url, token=TOKEN)
    store.release(store.acquire())
    with pytest.raises(StreamSqlError, match="META_DENIED"):
        store.audit()
    store.close()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--store", "m.db", "--host", EVERYWHERE), "without TLS"),
        (("--store", "m.db", "--tls-cert", "none", "--tls-key", "none"), "cannot be used"),
        (("--store", "m.db", "--host", "192.0.2.1", "--tls-cert", "c"), "both"),
        (("--store", "postgresql+psycopg://me:s3cret@h/db"), "STREAMSQL_STORE"),
        (("--store", "mysql://h/db", "--token-file", "t"), "META_UNREACHABLE"),
        (("--store", "postgresql+psycopg://h/db"), "--token-file"),
        (("--project-dir", "."), "CONFIG_INVALID"),
    ],
)
def test_a_start_that_cannot_be_meant_is_refused(
    tmp_path: Path, options: tuple[str, ...], part: str
) -> None:
    text = refused(command(tmp_path, *options))
    assert part in text
    assert "s3cret" not in text


@pytest.mark.processes
def test_a_missing_package_is_told_with_what_to_install(tmp_path: Path) -> None:
    text = refused(command(tmp_path, code=WITHOUT_FASTAPI))
    assert "given: fastapi" in text
    assert "dbt-streamsql[service]" in text


@pytest.mark.processes
def test_a_killed_service_holds_nothing_and_clients_say_so(
    tmp_path: Path, running: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMSQL_CACHE", str(tmp_path / "cache"))
    process = command(tmp_path, "--store", "meta.db", "--port", "0")
    running.append(process)
    store = open_store(url_of(process))
    fence = store.acquire()
    store.begin(fence)
    process.kill()
    process.wait()
    with pytest.raises(StreamSqlError) as caught:
        store.commit(fence, 1)
    assert caught.value.code == "META_UNREACHABLE"
    assert "streamsql meta serve" in caught.value.hint
    assert "Timeout" not in caught.value.given, "no answer was waited for"
    store.close()
    direct = open_store(f"sqlite:///{tmp_path}/meta.db")
    assert direct.acquire().token == fence.token + 1
    direct.close()
