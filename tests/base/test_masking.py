"""What `trio-mcp discover`, errors and the log show of commands: no word that looks like a secret."""

from __future__ import annotations

import shlex

import pytest

from trio_mcp.base.masking import masked


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("npx -y server --api-key hidden", "npx -y server --api-key ***"),
        ("npx server --token=hidden --port=80", "npx server --token=*** --port=80"),
        ("trio-mcp run URL --header a=hidden", "trio-mcp run URL --header a=***"),
        ("trio-mcp run URL --header=a=hidden", "trio-mcp run URL --header=a=***"),
        ("mcp-remote URL --header 'Authorization: Bearer hidden'", "mcp-remote URL --header 'Authorization: ***'"),
        ("docker run -e API_KEY=hidden -e PLAIN=x image", "docker run -e API_KEY=*** -e PLAIN=*** image"),
        ("docker run -i --rm -e API_KEY image", "docker run -i --rm -e *** image"),
        ("env GITHUB_TOKEN=hidden HOME=/home/me server", "env GITHUB_TOKEN=*** HOME=/home/me server"),
        ("server postgres://me:hidden@db/shop?sslkey=hidden", "server 'postgres://db/shop?...'"),
        ("server --url=https://me:hidden@x.example/?k=hidden", "server '--url=https://x.example/?...'"),
        ("server ghp_16C7e42F292c6912E7710c838347Ae178B4a", "server ***"),
        ("server sk-ant-api03-abcdefghijkl", "server ***"),
        ("server 0f8fad5b-d9cb-469f-a165-70867728950e", "server ***"),
        ("server 7hB2kLmQ9xZs4TvWy1Rp", "server ***"),
        ("server --key-file", "server --key-file"),
        ("server --pass hidden --verbose", "server --pass *** --verbose"),
        ("server --token -hidden", "server --token ***"),
        ('npx cli --config \'{"apiKey":"hidden"}\'', "npx cli --config '{\"apiKey\":***'"),
        ('npx cli --config=\'{"api_key": "hidden"}\'', "npx cli '--config={\"api_key\": ***'"),
        ("sh -c 'export TOKEN=hidden; server'", "sh -c 'export TOKEN=***'"),
        ("sh -c 'cd /srv && server --token hidden'", "sh -c 'cd /srv && server --token ***'"),
        ("sh -c 'server --db postgres://me:hidden@db/shop'", "sh -c 'server --db postgres://me:***'"),
        ("server 'Server=db;User Id=me;Password=hidden;'", "server 'Server=db;User Id=me;Password=***'"),
        ("curl '-HAuthorization: Bearer hidden'", "curl '-HAuthorization: ***'"),
        ("connect me:hidden@db", "connect me:***@db"),
        ("curl -u me:hidden", "curl -u me:***"),
        ("remote https://x.example/s/7hB2kLmQ9xZs4TvWy1Rp/mcp", "remote https://x.example/s/***/mcp"),
    ],
)
def test_what_looks_like_a_secret_is_masked(command: str, shown: str) -> None:
    words = masked(shlex.split(command))
    assert words == shlex.split(shown)
    assert "hidden" not in str(words)


@pytest.mark.parametrize(
    "command",
    [
        "npx -y @modelcontextprotocol/server-filesystem@2025.11.25 /home/me/Documents",
        "/usr/bin/python3.12 -m trio_mcp run /home/me/Projects/Shop2/server_of_the_shop.py:make_server",
        "uvx --from git+https://github.com/Owner/Name server",
        "docker run -i --rm mcp/postgres",
        "remote https://auth.example/keys/mcp --transport http-only --auth -v",
        "docker run -v /home/me/keys:/keys image:latest",
        "python -m a_module_with_a_rather_long_name --port 8000 --verbose",
    ],
)
def test_other_words_are_shown(command: str) -> None:
    assert masked(shlex.split(command)) == shlex.split(command)
