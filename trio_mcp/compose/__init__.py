"""Several servers as one: their connections, the names of what they offer, `ClientGroup`, and the agent that uses their tools.

With the files in which hosts keep their servers, from `trio_mcp.mcp_json`.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..mcp_json import (
        CommandServer as CommandServer,
        FoundServer as FoundServer,
        HostServer as HostServer,
        McpJson as McpJson,
        OAuthClient as OAuthClient,
        UrlServer as UrlServer,
        Variables as Variables,
        find_comments as find_comments,
        parse_jsonc as parse_jsonc,
        parse_mcp_json as parse_mcp_json,
        read_mcp_json as read_mcp_json,
        read_servers as read_servers,
        without_comments as without_comments,
        without_trailing_commas as without_trailing_commas,
    )
    from .agent.agent import AgentResult as AgentResult
    from .agent.calls import AgentCall as AgentCall, ModelToolsKeywords as ModelToolsKeywords
    from .agent.model_tools import ModelTools as ModelTools
    from .servers import GroupKeywords as GroupKeywords
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "agent.agent": "AgentResult",
            "agent.calls": "AgentCall ModelToolsKeywords",
            "agent.model_tools": "ModelTools",
            "servers": "GroupKeywords",
            "trio_mcp.mcp_json": (
                "CommandServer FoundServer HostServer McpJson OAuthClient UrlServer Variables find_comments parse_jsonc "
                "parse_mcp_json read_mcp_json read_servers without_comments without_trailing_commas"
            ),
        },
    )
