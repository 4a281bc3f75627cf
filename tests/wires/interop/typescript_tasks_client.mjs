// The TypeScript SDK's client of 2025-11-25 with its tasks, told by its one argument what to do; prints what it saw as JSON.
//   {"target": "http://..." | ["python", "server.py"], "env": {...}}
// The test copies this file into the folder with the installed package, so that its imports resolve.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const { target, env } = JSON.parse(process.argv[2]);
const capabilities = { elicitation: { form: {} }, tasks: { list: {}, cancel: {} } };
const client = new Client({ name: 'typescript', version: '1' }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, async request => {
  const related = request.params._meta?.['io.modelcontextprotocol/related-task'];
  return { action: 'accept', content: { value: related ? 7 : 0 } };
});
await client.connect(Array.isArray(target)
  ? new StdioClientTransport({ command: target[0], args: target.slice(1), env: { ...process.env, ...env } })
  : new StreamableHTTPClientTransport(new URL(target)));
await client.listTools();

const tasks = client.experimental.tasks;
const stream = (name, args = {}) => tasks.callToolStream({ name, arguments: args }, undefined, { task: { ttl: 60000 } });
const followed = async (name, args) => {
  const seen = [];
  for await (const message of stream(name, args)) {
    if (message.type === 'taskStatus') seen.push(message.task.status);
    else if (message.type === 'result') seen.push(message.result.content[0].text);
    else seen.push(message.type);
  }
  return seen;
};

const seen = { capability: client.getServerCapabilities().tasks.requests.tools.call };
seen.report = await followed('report', { year: 1 });
seen.broken = await followed('break_off');
const { value: created } = await stream('endless').next();
seen.cancelled = (await tasks.cancelTask(created.task.taskId)).status;
const { tasks: listed } = await tasks.listTasks();
seen.listed = listed.map(task => task.status);
seen.reason = listed[1].statusMessage;
await client.close();
console.log(JSON.stringify(seen));
