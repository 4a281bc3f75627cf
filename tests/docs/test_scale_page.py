"""What docs/scale.md says of several machines, followed to the letter: two processes on Redis behind nginx."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import Page
from serving import IMPORTS, START, free_port
from store_servers import missing, redis_server

pytestmark = pytest.mark.wires

PAGE = Page("scale")
OUTER = """
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    include {folder}/mcp.conf;
}}
"""
SCRIPT = """
set -m
sudo() {{ "$@"; }}
nginx() {{ command nginx -p {folder} -c {folder}/nginx.conf "$@"; }}
trio-mcp() {{ {python} -m trio_mcp "$@"; }}
python() {{ {python} "$@"; }}
trap 'kill %1 %2; nginx -s quit; wait' EXIT
{start}
{look}
echo "-- one is stopped"
kill %{stopped}
{call}
"""


def blocks(language: str) -> list[str]:
    section = PAGE.text.partition("## Several machines")[2].partition("### Kubernetes")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.mark.parametrize("stopped", [1, 2])
def test_two_processes_behind_nginx_on_redis_serve_as_the_page_says(stopped: int, tmp_path: Path) -> None:
    for program, package in (("nginx", "nginx"), ("curl", "curl")):
        if shutil.which(program) is None:
            missing(program, package)
    (app, client), (start, look), (site,) = blocks("python"), blocks("sh"), blocks("nginx")
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "nginx.conf").write_text(OUTER.format(folder=tmp_path))
    calls = [line for line in look.splitlines() if line.startswith(("trio-mcp call", "python client.py"))]
    with redis_server() as redis:
        ports = {"8000": free_port(), "8001": free_port(), "8080": free_port(), "6379": redis.port}

        def here(text: str) -> str:
            return re.sub("|".join(ports), lambda found: str(ports[found[0]]), text)

        (tmp_path / "mcp.conf").write_text(here(site))
        (tmp_path / "client.py").write_text(here(client))
        script = SCRIPT.format(
            folder=tmp_path,
            python=sys.executable,
            stopped=stopped,
            start=here(start),
            look=here(look),
            call=here("\n".join(calls)),
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, **IMPORTS},
            capture_output=True,
            text=True,
            timeout=6 * START,
        )
    before, _, after = done.stdout.partition("-- one is stopped")
    assert before.startswith("ready"), done.stderr
    assert before.count("tea: True") == after.count("tea: True") == len(calls) == 2, done.stderr
    # The command that lists the store finds what the processes have written.
    assert re.search(r"^node\s+records\s+2\s", before, re.MULTILINE), done.stdout + done.stderr
