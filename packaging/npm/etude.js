#!/usr/bin/env node
// Starts the program of the platform package that npm has installed beside this one.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

/** True on a system with musl instead of glibc, as Node reports its own C library. */
function isMusl() {
  return process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
}

/** The path of the program; exits with a message if its package is missing. */
function program() {
  const name = `@etude-dev/${process.platform}-${process.arch}${isMusl() ? "-musl" : ""}`;
  try {
    return require.resolve(`${name}/bin/etude`);
  } catch {
    process.stderr.write(
      `error: the package \`${name}\` is not installed\n` +
        "hint: install `etude` without `--omit=optional`; the platforms are Linux and macOS on x64 and arm64\n",
    );
    process.exit(4);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });

// A terminal sends Ctrl-C to the whole process group, so the program has it already. Other signals reach only this process.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}

child.on("error", (error) => {
  process.stderr.write(`error: the program cannot be started: ${error.message}\n`);
  process.exit(4);
});
child.on("exit", (status, signal) => {
  process.exit(signal ? 128 + constants.signals[signal] : status);
});
