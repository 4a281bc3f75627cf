"""The files of `docs/deploy/` are ones that their programs take, and the commands in them run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import crossplane
import httpx2
import pytest
import trio
import yaml
from constants import code
from serving import IMPORTS, SOON, START
from store_servers import missing

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
MOST_TO_END = code.hypercorn.HARD_END_AFTER + code.server.LIFESPAN_EXIT_SECONDS
"""Seconds that a server takes to end after its drain."""
INSTRUCTIONS = {"FROM", "COPY", "RUN", "WORKDIR", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "CMD"}
APP = "from trio_mcp import Server\n\nserver = Server('shop')\n"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def of(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def test_the_image_has_known_instructions_and_does_not_run_as_root() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    assert [user for user in of("USER") if user in ("root", "0")] == []
    assert len(of("USER")) == 1
    # In the shell form the shell would get the SIGTERM.
    assert json.loads(of("CMD")[0])[0] == "trio-mcp"


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
def test_docker_reads_the_image() -> None:
    """Without a network nothing can be built; the daemon may be missing too. What docker cannot parse, it says first."""
    command = ["docker", "build", "--check", str(DEPLOY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START)
    assert "dockerfile parse error" not in done.stderr.lower()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for name in ("trio-mcp.service", "trio-mcp.socket"):
        text = (DEPLOY / name).read_text().replace("/srv/mcp/.venv/bin/trio-mcp", "/bin/true")
        (tmp_path / name).write_text(text)
    units = [str(tmp_path / name) for name in ("trio-mcp.service", "trio-mcp.socket")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=START)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_waits_longer_than_the_server_drains() -> None:
    unit = (DEPLOY / "trio-mcp.service").read_text()
    assert "Type=notify" in unit
    (stop,), (drain,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE), re.findall(r"--drain (\d+)", unit)
    assert int(stop) > int(drain) + MOST_TO_END


def test_nginx_takes_the_site(tmp_path: Path) -> None:
    outer = tmp_path / "nginx.conf"
    outer.write_text(f"events {{}}\nhttp {{ include {DEPLOY / 'nginx.conf'}; }}\n")
    parsed = crossplane.parse(str(outer))
    assert parsed["errors"] == []
    text = (DEPLOY / "nginx.conf").read_text()
    # What is believed must not come from a client.
    for header in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix", "Forwarded"):
        assert f"proxy_set_header {header} " in text


PREFIXED = """
from trio_mcp import HttpRequest, HttpResponse, Server

server = Server("clinic")

@server.tool
def hello() -> str:
    return "hello"

@server.route("/where")
async def where(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.root_path} {request.path} {request.host}")
"""
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    upstream mcp {{ server 127.0.0.1:{port}; }}
    map $http_upgrade $connection_upgrade {{ default upgrade; "" ""; }}
    server {{
        listen unix:{folder}/front.sock;
        server_name mcp.example.com;
        {location}
    }}
}}
"""


async def test_nginx_publishes_a_server_under_a_prefix_as_the_page_says(tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        missing("nginx", "nginx")
    page = (ROOT / "docs" / "deployment.md").read_text()
    (location,) = (block for block in re.findall(r"```nginx\n(.*?)```", page, re.DOTALL) if "/clinic" in block)
    (command,) = re.findall(r"^trio-mcp (serve app.py --root-path .*)$", page, re.MULTILINE)
    (tmp_path / "app.py").write_text(PREFIXED)
    with trio.fail_after(2 * START):
        words = [sys.executable, "-m", "trio_mcp", *shlex.split(command), "--port", "0"]
        server, url = await started(words, tmp_path)
        port = url.rpartition(":")[2].partition("/")[0]
        config = tmp_path / "nginx.conf"
        config.write_text(NGINX.format(folder=tmp_path, port=port, location=location))
        front = await trio.lowlevel.open_process(["nginx", "-p", str(tmp_path), "-c", str(config)])
        try:
            transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "front.sock"), retries=8)
            async with httpx2.AsyncClient(transport=transport, base_url="http://mcp.example.com") as http:
                where = await http.get("/clinic/where")
                assert where.text == "/clinic /where mcp.example.com"
                called = await http.post("/clinic/mcp", json=HELLO, headers=HELLO_HEADERS)
                assert called.json()["result"]["content"] == [{"type": "text", "text": "hello"}]
        finally:
            for process in (front, server):
                process.terminate()
                await process.wait()


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "hello",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
HELLO_HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "hello",
}


def test_the_probes_of_kubernetes_are_those_of_the_server() -> None:
    deployment, service, budget = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_the_variables_of_kubernetes_are_in_the_secret_that_the_page_makes() -> None:
    deployment, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    references = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"]}
    assert references.keys() == {"TRIO_MCP_KEYS", "TRIO_MCP_STORE"}
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert "kubectl create secret generic mcp " in page
    for reference in references.values():
        assert reference["name"] == "mcp"
        assert f"--from-literal={reference['key']}=" in page


def test_kubernetes_waits_longer_than_the_pause_and_the_drain() -> None:
    deployment, *_ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    _, pause = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    command = json.loads(of("CMD")[0])
    drain = int(command[command.index("--drain") + 1])
    assert pod["terminationGracePeriodSeconds"] > int(pause) + drain + MOST_TO_END


async def started(command: list[str], folder: Path) -> tuple[trio.Process, str]:
    process = await trio.lowlevel.open_process(
        command, cwd=folder, env={**os.environ, **IMPORTS}, stderr=subprocess.PIPE
    )
    said = b""
    assert process.stderr is not None
    while not (b" serves MCP at " in said and said.endswith(b"\n")):
        data = await process.stderr.receive_some()
        assert data, said.decode()
        said += data
    return process, said.split()[-1].decode()


def command_of(file: str) -> list[str]:
    """The command that serves, in the file of a deployment."""
    if file == "Dockerfile":
        arguments: Any = json.loads(of("CMD")[0])
    else:
        unit = (DEPLOY / file).read_text()
        arguments = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0])
    return [sys.executable, "-m", "trio_mcp", *arguments[1:], "--port", "0"]


@pytest.mark.parametrize("file", ["Dockerfile", "trio-mcp.service"])
async def test_the_command_serves_and_the_probe_finds_it(file: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with trio.fail_after(2 * START):
        process, url = await started(command_of(file), tmp_path)
        try:
            port = url.rpartition(":")[2].partition("/")[0]
            probe = json.loads(of("HEALTHCHECK")[0].partition("CMD ")[2])
            probe[0], probe[2] = sys.executable, probe[2].replace(":8000", f":{port}")
            assert (await trio.run_process(probe, check=False)).returncode == 0
            async with httpx2.AsyncClient() as http:
                address = f"http://127.0.0.1:{port}/mcp"
                assert (await http.post(address, json={})).status_code == 421
                named = await http.post(address, json={}, headers={"host": "mcp.example.com"})
                assert named.status_code != 421
            process.terminate()
            with trio.fail_after(SOON):
                assert await process.wait() == 0
            assert (await trio.run_process(probe, check=False, stderr=subprocess.DEVNULL)).returncode != 0
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                if process.stderr is not None:
                    await process.stderr.aclose()
