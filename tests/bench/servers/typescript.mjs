// The benchmark's tools on the TypeScript SDK: `node typescript.mjs stdio`, or `http PORT`.
// It runs as a copy in the folder into which npm installed the packages, which node looks for beside a script.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import * as S from '@modelcontextprotocol/server';
import * as z from 'zod/v4';

const { McpServer, inputRequired, acceptedContent } = S;

const SCHEMA = { type: 'object', properties: { value: { type: 'integer' } }, required: ['value'] };
const Q = { mode: 'form', message: 'Which value?', requestedSchema: SCHEMA };

// relatedRequestId: without it the question leaves on the session-wide GET stream, not on the POST stream
function build(rc) {
  const s = new McpServer({ name: 'bench', version: '1' }, { capabilities: { tools: {} } });
  s.registerTool('echo', { description: 'Echo the text.', inputSchema: z.object({ text: z.string() }) },
    async ({ text }) => ({ content: [{ type: 'text', text }] }));
  s.registerTool('progress', { description: 'Report progress n times.', inputSchema: z.object({ n: z.number() }) },
    async ({ n }, ctx) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      for (let i = 0; i < n; i++)
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: i + 1, total: n, message: 'step' } });
      return { content: [{ type: 'text', text: 'done' }] };
    });
  s.registerTool('ask', { description: 'Ask the user for a value.' }, async ctx => {
    if (rc?.era === 'legacy') {
      const r = await ctx.mcpReq.elicitInput(Q, { relatedRequestId: ctx.mcpReq.id });
      return { content: [{ type: 'text', text: `got ${r.content.value}` }] };
    }
    const a = acceptedContent(ctx.mcpReq.inputResponses, 'value');
    if (!a) return inputRequired({ inputRequests: { value: inputRequired.elicit({ message: Q.message, requestedSchema: SCHEMA }) }, requestState: 'asked' });
    return { content: [{ type: 'text', text: `got ${a.value}` }] };
  });
  s.registerTool('fan', { description: 'Ask n questions at once.', inputSchema: z.object({ n: z.number() }) }, async ({ n }, ctx) => {
    const rs = await Promise.all(Array.from({ length: n }, () => ctx.mcpReq.elicitInput(Q, { relatedRequestId: ctx.mcpReq.id })));
    return { content: [{ type: 'text', text: `got ${rs.reduce((t, r) => t + r.content.value, 0)}` }] };
  });
  const extra = Number(process.env.BENCH_TOOLS ?? '0');
  for (let i = 0; i < extra; i++)
    s.registerTool(`extra_${i}`, { description: `Extra tool number ${i}, here to make tools/list long.`,
      inputSchema: z.object({ text: z.string(), count: z.number().default(1), flag: z.boolean().default(false) }) },
      async ({ text }) => ({ content: [{ type: 'text', text }] }));
  return s;
}

if (process.argv[2] === 'stdio') {
  const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
  void serveStdio(build);
} else {
  const N = await import('@modelcontextprotocol/node');
  const modern = N.toNodeHandler(S.createMcpHandler(build, { legacy: 'reject' }));
  const sessions = new Map();
  createServer((rq, rs) => {
    const chunks = [];
    rq.on('data', c => chunks.push(c));
    rq.on('end', async () => {
      try {
        const body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
        if (rq.headers['mcp-protocol-version'] === '2026-07-28') return void (await modern(rq, rs, body));
        const sid = rq.headers['mcp-session-id'];
        if (sid) {
          const t = sessions.get(sid);
          if (!t) return void rs.writeHead(404).end();
          return void (await t.handleRequest(rq, rs, body));
        }
        const t = new N.NodeStreamableHTTPServerTransport({
          sessionIdGenerator: () => randomUUID(),
          onsessioninitialized: id => void sessions.set(id, t),
        });
        await build({ era: 'legacy' }).connect(t);
        await t.handleRequest(rq, rs, body);
      } catch (e) {
        console.error(e);
        if (!rs.headersSent) rs.writeHead(500).end();
      }
    });
  }).listen(Number(process.argv[3]), '127.0.0.1');
}
