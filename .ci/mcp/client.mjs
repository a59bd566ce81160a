// The official TypeScript client over stdio and HTTP.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { ETUDE, APP, URL: url, TOKEN, HOME, PATH, XDG_STATE_HOME } = process.env;

async function check(title, transport) {
  const client = new Client({ name: "check", version: "1" });
  await client.connect(transport);
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  assert.ok(tools.includes("greet"), tools.join());
  const result = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
  assert.equal(result.content[0].text, "Hello, Ada!");
  assert.equal(result.structuredContent.status, "succeeded");
  assert.equal((await client.callTool({ name: "greet", arguments: {} })).isError, true);
  const heard = [];
  const onprogress = ({ message }) => heard.push(message);
  await client.callTool({ name: "test_tool_with_progress", arguments: {} }, undefined, { onprogress });
  // This client forgets its handler with the response, so it loses notifications that arrive in the same read as that.
  assert.ok(heard.length > 0 && heard.every((message) => /^step (first|second|third) /.test(message)), heard.join());
  const uri = `etude://runs/${result.structuredContent.run_id}/output`;
  assert.equal((await client.readResource({ uri })).contents[0].text, '"Hello, Ada!"');
  await client.listPrompts();
  await client.close();
  console.log(`    ${title}: ${tools.length} tools, ${heard.length} progress notifications`);
}

const env = { HOME, PATH, XDG_STATE_HOME };
await check("stdio", new StdioClientTransport({ command: ETUDE, args: ["mcp", "-C", APP], env }));
const requestInit = { headers: { Authorization: `Bearer ${TOKEN}` } };
await check("HTTP", new StreamableHTTPClientTransport(new URL(url), { requestInit }));
