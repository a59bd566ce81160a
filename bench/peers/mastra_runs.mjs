// Mastra's workflows with its LibSQL store on a file. `mastra_runs.mjs KIND DIR`; prints one JSON object of figures.
//
// Durability: a snapshot of the whole run after every step, with the store's own settings (write-ahead log, `synchronous` NORMAL).
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { Mastra } from '@mastra/core/mastra';
import { LibSQLStore } from '@mastra/libsql';
import { z } from 'zod';

// One connection that is kept. `fetch` takes longer, and is not what is measured.
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const chat = `http://${process.env.MODEL_ADDRESS}/v1/chat/completions`;

function ask(prompt) {
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: prompt }] });
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((done, failed) => {
    const request = http.request(chat, { method: 'POST', agent, headers }, async (answer) => {
      const told = await text(answer);
      if (answer.statusCode !== 200) failed(new Error(`the model answered ${answer.statusCode}`));
      else done(JSON.parse(told).choices[0].message.content);
    });
    request.on('error', failed).end(body);
  });
}

const [kind, directory] = process.argv.slice(2);
const shape = z.object({ n: z.number(), text: z.string().optional() });
const pass = {
  process: () => {
    const ended = spawnSync('cat', ['out.json'], { input: '{}' });
    return { n: JSON.parse(ended.stdout.toString()).output.n };
  },
  // Ends the process as a crash does, unless somebody has noted that it did.
  killedOnce: () => {
    if (!existsSync('resumed')) process.kill(process.pid, 'SIGKILL');
    return pass.process();
  },
  nothing: ({ inputData }) => ({ n: inputData.n + 1 }),
  talk: async ({ inputData }) => ({ n: inputData.n + 1, text: await ask(`Say what you think of number ${inputData.n}.`) }),
  make: () => {
    const ended = spawnSync('cat', ['../value.json'], { input: '{}', maxBuffer: Infinity });
    return { n: 0, text: JSON.parse(ended.stdout.toString()).output };
  },
  take: ({ inputData }) => {
    const ended = spawnSync('sh', ['../take.sh'], { input: JSON.stringify({ value: inputData.text }) });
    return { n: JSON.parse(ended.stdout.toString()).output };
  },
  wait: async ({ inputData }) => {
    await new Promise((done) => setTimeout(done, 100));
    return { n: inputData.n + 1 };
  },
};

function workflow(count, what, last = what) {
  let flow = createWorkflow({ id: 'flow', inputSchema: shape, outputSchema: shape });
  for (let at = 0; at < count; at += 1) {
    flow = flow.then(createStep({ id: `s${at}`, inputSchema: shape, outputSchema: shape, execute: async (context) => pass[at < count - 1 ? what : last](context) }));
  }
  flow.commit();
  const storage = new LibSQLStore({ id: 'bench', url: `file:${directory}/mastra.db` });
  const mastra = new Mastra({ workflows: { flow }, storage, logger: false });
  return mastra.getWorkflow('flow');
}

async function run(flow) {
  const begun = await (flow.createRun ?? flow.createRunAsync).call(flow);
  const result = await begun.start({ inputData: { n: 0 } });
  if (result.status !== 'success') throw new Error(JSON.stringify(result).slice(0, 500));
}

async function crash(begins) {
  const flow = workflow(100, 'process', 'killedOnce');
  const run = await (flow.createRun ?? flow.createRunAsync).call(flow, { runId: 'crash' });
  const result = begins ? await run.start({ inputData: { n: 0 } }) : await run.restart();
  if (result.status !== 'success') throw new Error(JSON.stringify(result).slice(0, 500));
  return result;
}

async function timed(work) {
  const since = performance.now();
  await work();
  return performance.now() - since;
}

if (kind === 'one') {
  await run(workflow(1, 'process'));
  console.log('{}');
} else if (kind === 'steps') {
  const flow = workflow(100, 'process');
  console.log(JSON.stringify({ ms: await timed(() => run(flow)) }));
} else if (kind === 'killed') {
  await crash(true);
} else if (kind === 'resumed') {
  console.log(JSON.stringify((await crash(false)).result));
} else if (kind === 'durable') {
  const flow = workflow(100, 'nothing');
  console.log(JSON.stringify({ sync: (await timed(() => run(flow))) / 100 }));
} else if (kind === 'large') {
  const flow = workflow(2, 'make', 'take');
  console.log(JSON.stringify({ ms: await timed(() => run(flow)) }));
} else if (kind === 'llm') {
  await run(workflow(100, 'talk'));
  console.log('{}');
} else if (kind === 'concurrent') {
  const flow = workflow(10, 'wait');
  console.log(JSON.stringify({ ms: await timed(() => Promise.all(Array.from({ length: 100 }, () => run(flow)))) }));
}
process.exit(0);
