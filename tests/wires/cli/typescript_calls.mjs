// The TypeScript SDK's clients, which make calls one after the other as their one argument says; print what became of them.
//   {"url": "http://...", "era": "auto" | "legacy" | "tasks", "name": "...", "calls": 100, "tools": [...], "pause": 0.1}
// "tasks" is the client of the first major version, whose calls are tasks of 2025-11-25.
// The test copies this file into the folder with the installed package, so that its imports resolve.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as TasksClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as TasksTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const { url, era, name, calls, tools, pause, keepAlive, repeatSeconds, key } = JSON.parse(process.argv[2]);
const seen = { ended: {}, errors: [], asked: {}, refused: [], progressed: 0, repeated: 0 };
const count = (table, word) => { table[word] = (table[word] ?? 0) + 1; };
const sleep = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000));
const answer = async request => {
  count(seen.asked, request.params.message);
  return { action: 'accept', content: { value: true } };
};
const options = keepAlive ? {} : { requestInit: { headers: { connection: 'close' } } };

const connected = async () => {
  if (era === 'tasks') {
    const client = new TasksClient(
      { name: 'typescript', version: '1' }, { capabilities: { elicitation: { form: {} }, tasks: { list: {}, cancel: {} } } },
    );
    client.setRequestHandler(ElicitRequestSchema, answer);
    await client.connect(new TasksTransport(new URL(url), options));
    await client.listTools();
    return client;
  }
  const client = new Client(
    { name: 'typescript', version: '1' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: era } },
  );
  client.setRequestHandler('elicitation/create', answer);
  await client.connect(new StreamableHTTPClientTransport(new URL(url), options));
  return client;
};

const resultOf = async (client, tool, item) => {
  const params = { name: tool, arguments: { item } };
  if (era === 'tasks') {
    for await (const message of client.experimental.tasks.callToolStream(params, undefined, { task: { ttl: 60000 } })) {
      if (message.type === 'result') return message.result;
      if (message.type === 'error') throw message.error;
    }
  }
  if (tool === 'pay') params._meta = { [key]: item };
  return await client.callTool(params, { onprogress: () => { seen.progressed += 1; } });
};

// A client that cannot connect is one error, and another one is made.
const connectedAtLast = async () => {
  const until = Date.now() + repeatSeconds * 1000;
  for (;;) {
    try {
      return await connected();
    } catch (error) {
      if (Date.now() > until) throw error;
      seen.refused.push(error.message);
      await sleep(0.2);
    }
  }
};

const client = await connectedAtLast();
for (let number = 0; number < calls; number += 1) {
  const tool = tools[number % tools.length], item = `${name} ${number}`;
  const until = Date.now() + repeatSeconds * 1000;
  for (;;) {
    try {
      const result = await resultOf(client, tool, item);
      if (result.isError) throw new Error(result.content[0].text);
      count(seen.ended, result.content[0].text.split(' ').at(-1));
    } catch (error) {
      // What has a key may be sent again.
      if (tool === 'pay' && Date.now() < until) {
        seen.repeated += 1;
        await sleep(0.2);
        continue;
      }
      seen.errors.push(`${item} ${tool}: ${error.message} ${error.cause ?? ''}`);
    }
    break;
  }
  await sleep(pause);
}
await client.close().catch(() => {});
console.log(JSON.stringify(seen));
process.exit(0);
