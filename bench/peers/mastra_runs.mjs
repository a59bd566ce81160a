// Mastra's workflows with its LibSQL store on a file. `mastra_runs.mjs KIND DIR`; prints one JSON object of figures.
//
// Durability: a snapshot of the whole run after every step, with the store's own settings.
import { spawnSync } from 'node:child_process';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { Mastra } from '@mastra/core/mastra';
import { LibSQLStore } from '@mastra/libsql';
import { z } from 'zod';

const [kind, directory] = process.argv.slice(2);
const shape = z.object({ n: z.number() });
const pass = {
  process: () => {
    const ended = spawnSync('cat', ['out.json'], { input: '{}' });
    return { n: JSON.parse(ended.stdout.toString()).output.n };
  },
  nothing: ({ inputData }) => ({ n: inputData.n + 1 }),
  wait: async ({ inputData }) => {
    await new Promise((done) => setTimeout(done, 100));
    return { n: inputData.n + 1 };
  },
};

function workflow(count, what) {
  let flow = createWorkflow({ id: 'flow', inputSchema: shape, outputSchema: shape });
  for (let at = 0; at < count; at += 1) {
    flow = flow.then(createStep({ id: `s${at}`, inputSchema: shape, outputSchema: shape, execute: async (context) => pass[what](context) }));
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

async function timed(work) {
  const since = performance.now();
  await work();
  return performance.now() - since;
}

if (kind === 'one') {
  await run(workflow(1, 'process'));
  console.log('{}');
} else if (kind === 'steps') {
  const flow = workflow(1000, 'process');
  console.log(JSON.stringify({ ms: await timed(() => run(flow)) }));
} else if (kind === 'durable') {
  const flow = workflow(300, 'nothing');
  console.log(JSON.stringify({ sync: (await timed(() => run(flow))) / 300 }));
} else if (kind === 'concurrent') {
  const flow = workflow(10, 'wait');
  console.log(JSON.stringify({ ms: await timed(() => Promise.all(Array.from({ length: 1000 }, () => run(flow)))) }));
}
process.exit(0);
