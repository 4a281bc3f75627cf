// The TypeScript SDK's client, told by its one argument what to do; prints what it saw as one line of JSON.
//   {"target": "http://..." | ["python", "server.py"], "env": {...}, "era": "auto" | "legacy"}
// The test copies this file into the folder with the installed package, so that its imports resolve.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const { target, env, era } = JSON.parse(process.argv[2]);

const client = new Client(
  { name: 'typescript', version: '1' },
  { capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} }, versionNegotiation: { mode: era } },
);
client.setRequestHandler('elicitation/create', async request => {
  const fields = request.params.requestedSchema.properties;
  if ('value' in fields) return { action: 'accept', content: { value: 14 } };
  return { action: 'accept', content: { traveller: 'Ada', nights: 3, seat: 'window', extras: ['wifi'] } };
});
client.setRequestHandler('sampling/createMessage', async () => ({
  role: 'assistant', content: { type: 'text', text: 'So be it.' }, model: 'm-1', stopReason: 'endTurn',
}));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///home/ada', name: 'home' }] }));

const transport = Array.isArray(target)
  ? new StdioClientTransport({ command: target[0], args: target.slice(1), env: { ...process.env, ...env } })
  : new StreamableHTTPClientTransport(new URL(target));

const failing = async promise => {
  try {
    await promise;
    return 'it worked';
  } catch (error) {
    return { code: error.code, message: error.message };
  }
};
const call = (name, args = {}, options = undefined) => client.callTool({ name, arguments: args }, options);

await client.connect(transport);
const seen = { version: client.getNegotiatedProtocolVersion(), server: client.getServerVersion() };
seen.tools = (await client.listTools()).tools.map(tool => tool.name);
seen.place = await call('place');
seen.picture = await call('picture');
seen.refused = await call('refuse', { why: 'no seat is left' });
seen.unknown = await failing(call('nowhere'));
seen.trip = await call('plan_trip');
seen.sum = await call('add_up');
seen.thought = await call('think', { about: 'rain' });
seen.folders = await call('folders');

seen.progress = [];
await call('count', { n: 3 }, { onprogress: report => seen.progress.push(report.progress) });

const stop = new AbortController();
const onprogress = () => stop.abort('enough');
await failing(call('hold', {}, { signal: stop.signal, onprogress }));
seen.ended = await call('ended');

await client.close();
console.log(JSON.stringify(seen));
