#!/usr/bin/env node
// artifacts.js BUILT INTO: writes what the Rust crate needs of each contract: ABI, creation code, how it was compiled.
// Keys are sorted and no path gets in, so equal sources give equal bytes on every machine.
const fs = require("fs");
const path = require("path");
const [built, into] = process.argv.slice(2);
const sorted = (x) =>
  Array.isArray(x) ? x.map(sorted)
  : x && typeof x === "object" ? Object.fromEntries(Object.keys(x).sort().map((k) => [k, sorted(x[k])]))
  : x;
fs.mkdirSync(into, { recursive: true });
for (const name of ["PoolFactory", "Controller", "Vault", "Court", "Forwarder", "TestToken"]) {
  const { abi, bytecode, metadata } = JSON.parse(fs.readFileSync(path.join(built, `${name}.sol`, `${name}.json`), "utf8"));
  const { compiler, settings } = metadata;
  const artifact = {
    abi,
    bytecode: bytecode.object,
    compiler: {
      bytecodeHash: "none",
      evmVersion: settings.evmVersion,
      openzeppelin: require("@openzeppelin/contracts/package.json").version,
      optimizer: { enabled: settings.optimizer.enabled, runs: settings.optimizer.runs },
      solc: compiler.version,
      viaIR: settings.viaIR,
    },
  };
  fs.writeFileSync(path.join(into, `${name}.json`), JSON.stringify(sorted(artifact), null, 1) + "\n");
}
