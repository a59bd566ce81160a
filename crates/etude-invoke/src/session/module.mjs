// Runs the default function of a skill's module: (ctx, args) => result. `undefined` prints nothing.
import { createConnection } from "node:net";

const host = (request) =>
  new Promise((resolve, reject) => {
    const socket = createConnection(process.env.ETUDE_HOST);
    // A character may lie across two chunks.
    socket.setEncoding("utf8");
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
    socket.on("close", () => reject(new Error("the connection to etude was closed")));
  });

let text = "";
process.stdin.setEncoding("utf8");
for await (const chunk of process.stdin) text += chunk;
const { args, ctx } = JSON.parse(text);
const manager = {
  next: () => host({ op: "next" }),
  invoke: (name, args = {}) => host({ op: "invoke", name, args }),
  get: (path) => host({ op: "get", path }),
  set: (path, value) => host({ op: "set", path, value }),
  add: (path, by = 1, max = null) => host({ op: "add", path, by, max }),
  emit: (topic, data) => host({ op: "emit", topic, data }),
  ask: (question) => host({ op: "ask", question }),
  log: (level, text) => host({ op: "log", level, text }),
};
// `envelope.target` is the context that is served, the context itself for a call that serves none. As JSON it stays the
// number that it is on stdin: a context that has itself inside could not be written.
const linked = (context, target) => {
  const served = context.envelope.target;
  Object.defineProperty(context.envelope, "target", { value: target, enumerable: false });
  Object.defineProperty(context.envelope, "toJSON", {
    value() {
      return { id: this.id, target: served, parent: this.parent };
    },
  });
  context.manager = manager;
};
if (ctx.envelope.target === null) {
  linked(ctx, ctx);
} else {
  linked(ctx, ctx.target);
}
linked(ctx.target, ctx.target);
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
