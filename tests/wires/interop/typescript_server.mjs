// A server on the TypeScript SDK, over stdin and stdout, in both eras. Its tools ask a model, and one of them the user as well.
// The test copies this file into the folder with the installed packages, so that its imports resolve.

import { McpServer, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const prompt = { role: 'user', content: { type: 'text', text: 'A poem, please.' } };
const look = { name: 'look', inputSchema: { type: 'object', properties: { at: { type: 'string' } } } };
const poem = inputRequired.createMessage({ messages: [prompt], maxTokens: 20 });
const withTools = inputRequired.createMessage({ messages: [prompt], maxTokens: 20, tools: [look], toolChoice: { mode: 'required' } });
const name = inputRequired.elicit({
  message: 'Who are you?',
  requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
});
const text = said => ({ content: [{ type: 'text', text: said }] });

const asking = (inputRequests, answer) => async ctx => {
  const answers = ctx.mcpReq.inputResponses;
  const complete = answers && Object.keys(inputRequests).every(key => key in answers);
  return complete ? text(answer(answers)) : inputRequired({ inputRequests, requestState: 'asked once' });
};

serveStdio(() => {
  const server = new McpServer({ name: 'typescript', version: '1' }, { capabilities: { tools: {} } });
  server.registerTool('recite', {}, asking({ poem }, ({ poem }) => `${poem.model}: ${poem.content.text}`));
  server.registerTool('look', {}, asking({ withTools }, ({ withTools }) => JSON.stringify([withTools.content].flat())));
  server.registerTool('sign', {}, asking({ poem, name }, ({ poem, name }) => `${poem.content.text} ${name.content.name}`));
  server.registerTool('echo', {}, async () => text('echoed'));
  return server;
});
