// Ajv, its function compiled once. `ajv_runs.mjs SCHEMA VALUE` tells the milliseconds of 500 validations, each of which finds
// every violation; the median of 15 times after one that does not count, by when Node has compiled what is hot.
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';

const [schema, value] = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, 'utf8')));
const validate = new Ajv2020({ allErrors: true }).compile(schema);

function once() {
  const since = performance.now();
  for (let at = 0; at < 500; at += 1) {
    if (!validate(value)) throw new Error(JSON.stringify(validate.errors));
  }
  return performance.now() - since;
}

once();
const times = Array.from({ length: 15 }, once).sort((a, b) => a - b);
console.log(JSON.stringify({ ms: times[7] }));
