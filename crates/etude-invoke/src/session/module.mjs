// Runs the default function of a skill's module: (ctx, args) => result. `undefined` prints nothing.
import { createConnection } from "node:net";

const host = (request) =>
  new Promise((resolve, reject) => {
    const socket = createConnection(process.env.ETUDE_HOST);
    let text = "";
    socket.on("connect", () => socket.write(JSON.stringify(request) + "\n"));
    socket.on("data", (chunk) => {
      text += chunk;
      if (!text.endsWith("\n")) return;
      socket.end();
      const answer = JSON.parse(text);
      if (answer.ok) return resolve(answer.undefined ? undefined : answer.value);
      reject(Object.assign(new Error(answer.error.message), answer.error));
    });
    socket.on("error", reject);
  });

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { args, ctx } = JSON.parse(text);
ctx.manager = {
  next: () => host({ op: "next" }),
  invoke: (name, args = {}) => host({ op: "invoke", name, args }),
  get: (path) => host({ op: "get", path }),
  set: (path, value) => host({ op: "set", path, value }),
  add: (path, by = 1, max = null) => host({ op: "add", path, by, max }),
  emit: (topic, data) => host({ op: "emit", topic, data }),
  ask: (question) => host({ op: "ask", question }),
  log: (level, text) => host({ op: "log", level, text }),
};
// What the module prints is no result.
console.log = console.error;
try {
  const module = await import(process.argv[1]);
  const result = await module.default(ctx, args);
  process.stdout.write(JSON.stringify(result === undefined ? {} : { result }));
} catch (error) {
  process.stdout.write(JSON.stringify({ error: { message: String(error?.message ?? error), kind: error?.kind } }));
  process.exitCode = 1;
}
