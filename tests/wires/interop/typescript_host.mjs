// The TypeScript SDK's client as a host without a model, told by its one argument what to call; prints what it saw as JSON.
//   {"target": "http://..." | ["python", ...], "env": {...}, "era": "auto" | "legacy", "tools": ["recite", ...]}
// The test copies this file into the folder with the installed packages, so that its imports resolve.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const { target, env, era, tools } = JSON.parse(process.argv[2]);

const client = new Client(
  { name: 'typescript', version: '1' },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: era } },
);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { seat: 'window', bags: 2, sure: true } }));

const transport = Array.isArray(target)
  ? new StdioClientTransport({ command: target[0], args: target.slice(1), env: { ...process.env, ...env } })
  : new StreamableHTTPClientTransport(new URL(target));

await client.connect(transport);
const seen = { version: client.getNegotiatedProtocolVersion(), server: client.getServerVersion()?.name, texts: {} };
seen.tools = (await client.listTools()).tools.map(tool => tool.name);
for (const name of tools) {
  const { content } = await client.callTool({ name, arguments: {} });
  seen.texts[name] = content[0].text;
}
await client.close();
console.log(JSON.stringify(seen));
