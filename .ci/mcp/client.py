"""The official Python client over stdio and HTTP, in each revision that it speaks."""

import asyncio
import json

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from serving import APP, binary, environment, serving


async def check(title: str, client: Client) -> None:
    heard = []

    async def progress(value, total, message):
        heard.append(message)

    async with client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == sorted(tools) and "greet" in tools and "etude_show" in tools, tools
        result = await client.call_tool("greet", {"name": "Ada"})
        assert not result.is_error and result.content[0].text == "Hello, Ada!", result
        run = result.structured_content["run_id"]
        assert result.structured_content["status"] == "succeeded", result
        shown = await client.call_tool("etude_show", {"run_id": run})
        assert shown.structured_content["cause"] == "mcp", shown
        assert (await client.call_tool("greet", {"name": 1})).is_error
        assert (await client.call_tool("test_error_handling", {})).is_error
        result = await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)
        assert result.structured_content["output"] == 3 and "step first started" in heard, (result, heard)
        waiting = await client.call_tool("ask", {})
        assert waiting.structured_content["status"] == "waiting" and "etude approve" in waiting.content[0].text, waiting
        output = await client.read_resource(f"etude://runs/{run}/output")
        assert json.loads(output.contents[0].text) == "Hello, Ada!"
        assert len((await client.list_resource_templates()).resource_templates) == 4
        assert any(resource.name == "greet" for resource in (await client.list_resources()).resources)
        await client.list_prompts()
        print(f"    {title}: {client.protocol_version}, {len(tools)} tools, {len(heard)} progress notifications", flush=True)


async def refuse(*_) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


async def main() -> None:
    with serving() as (home, port, token):
        server = StdioServerParameters(command=binary(), args=["mcp", "-C", str(APP)], env=environment(home))
        for mode in ("auto", "legacy", "2026-07-28"):
            await check(f"stdio, {mode}", Client(server, mode=mode))
            # A client that accepts every form must not settle an approval.
            await check(f"stdio with forms, {mode}", Client(server, mode=mode, elicitation_callback=refuse))
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
                transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
                await check(f"HTTP, {mode}", Client(transport, mode=mode))


asyncio.run(main())
