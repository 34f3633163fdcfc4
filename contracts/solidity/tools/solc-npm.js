#!/usr/bin/env node
// Speaks just enough of the solc command line for forge, with the WASM compiler of npm behind it.
const solc = require("solc");
const args = process.argv.slice(2);
if (args.includes("--version")) {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version()}`);
} else if (args.includes("--standard-json")) {
  process.stdout.write(solc.compile(require("fs").readFileSync(0, "utf8"))); // forge inlines every source
} else {
  console.error(`solc-npm: "${args.join(" ")}" is not supported; forge needs --version and --standard-json only`);
  process.exit(1);
}
