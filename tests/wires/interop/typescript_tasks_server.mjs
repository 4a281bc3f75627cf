// A server on the TypeScript SDK of 2025-11-25 whose tools are tasks in its InMemoryTaskStore: over stdin and stdout, or with the
// argument `http` for one session.
// The test copies this file into the folder with the installed package, so that its imports resolve.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { InMemoryTaskStore, InMemoryTaskMessageQueue } from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { z } from 'zod';
const taskStore = new InMemoryTaskStore();
const server = new McpServer({ name: 'typescript', version: '1' }, {
  capabilities: { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
  taskStore, taskMessageQueue: new InMemoryTaskMessageQueue(),
});
const text = said => ({ content: [{ type: 'text', text: said }] });
// `work` runs when the task was created; what it returns ends the task.
const tool = (name, taskSupport, work) => server.experimental.tasks.registerToolTask(
  name,
  { inputSchema: { n: z.number().optional() }, execution: { taskSupport } },
  {
    async createTask(args, { taskStore }) {
      const task = await taskStore.createTask({ ttl: 60000, pollInterval: 50 });
      setTimeout(async () => {
        try {
          await taskStore.storeTaskResult(task.taskId, 'completed', text(await work(args, taskStore, task.taskId)));
        } catch (error) {
          await taskStore.storeTaskResult(task.taskId, 'failed', { ...text(error.message), isError: true });
        }
      }, 20);
      return { task };
    },
    getTask: (args, { taskStore, taskId }) => taskStore.getTask(taskId),
    getTaskResult: (args, { taskStore, taskId }) => taskStore.getTaskResult(taskId),
  },
);

tool('double', 'required', async ({ n }) => String(2 * n));
tool('broken', 'optional', async () => { throw new Error('no luck'); });
tool('endless', 'optional', () => new Promise(() => {}));
tool('ask', 'required', async (args, taskStore, taskId) => {
  await taskStore.updateTaskStatus(taskId, 'input_required');
  const requestedSchema = { type: 'object', properties: { value: { type: 'integer' } }, required: ['value'] };
  const { action, content } = await server.server.elicitInput({ message: 'How many?', requestedSchema }, { relatedTask: { taskId } });
  return `${action} ${content.value}`;
});

if (process.argv[2] === 'http') {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
  await server.connect(transport);
  const http = createServer((request, response) => transport.handleRequest(request, response));
  http.listen(0, '127.0.0.1', () => console.error(`typescript serves MCP at http://127.0.0.1:${http.address().port}/mcp, for tests`));
} else {
  await server.connect(new StdioServerTransport());
}
