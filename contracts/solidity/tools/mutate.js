#!/usr/bin/env node
// mutate.js FORGE: breaks the arithmetic and checks of every contract one at a time; some test must fail for each.
// All mutants are compiled into one build, each behind a switch; the switch is the block's coinbase, which no contract
// here reads and forge sets from its environment. So a mutant costs a test run and no compilation.
// Survivors must be explained in tools/mutants-allowed.json. Options: --list, --only N,N..., --verbose, and --fresh: asks
// again about mutants that an earlier run killed with these sources, tools and that very suite.
const crypto = require("crypto");
const fs = require("fs");
const os = require("os");
const path = require("path");
const { spawn, spawnSync } = require("child_process");

const root = path.join(__dirname, "..");
const work = path.join(root, "out", "mutants");
const [forge, ...options] = process.argv.slice(2);
const JOBS = Math.max(2, os.cpus().length);

/// What is mutated.
const TARGETS = [
  "src/Vault.sol", "src/lib/Lanes.sol", "src/lib/Coin.sol", "src/Controller.sol", "src/Court.sol", "src/Forwarder.sol",
  "src/PoolFactory.sol", "src/lib/Blueprint.sol", "src/lib/Data.sol", "src/lib/Evidence.sol", "src/lib/Relayed.sol",
  "src/lib/Signatures.sol", "src/lib/Terms.sol", "src/TestToken.sol",
];
const SWAPS = {
  "<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"],
  "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "<<": [">>"], ">>": ["<<"], "|": ["&"], "&": ["|"],
};

const mutants = []; // index 0 is the unchanged contract
mutants.push(null);

/// Returns the text of a source with every mutant in it behind its switch.
function schema(file) {
  const solc = require("solc");
  const text = fs.readFileSync(path.join(root, file), "utf8");
  const input = {
    language: "Solidity",
    sources: { [file]: { content: text } },
    settings: { stopAfter: "parsing", outputSelection: { "*": { "": ["ast"] } } },
  };
  const { sources, errors } = JSON.parse(solc.compile(JSON.stringify(input)));
  if (!sources?.[file]) throw new Error(JSON.stringify(errors));
  let name = "";
  let blocks = 0;

  const span = (node) => {
    const [start, length] = node.src.split(":").map(Number);
    return [start, start + length];
  };
  const raw = (node) => text.slice(...span(node));
  const born = (node, from, to) => {
    const line = text.slice(0, span(node)[0]).split("\n").length;
    mutants.push({ file, line, in: name, from: from.replace(/\s+/g, " "), to: to.replace(/\s+/g, " ") });
    return `Mutant.on(${mutants.length - 1})`;
  };

  /// The node's text with its children's mutants in it, and its own around them.
  function render(node, skip = []) {
    const children = [];
    for (const [key, value] of Object.entries(node)) {
      if (skip.includes(key) || key === "documentation") continue;
      for (const child of Array.isArray(value) ? value : [value]) if (child?.nodeType && child.src) children.push([key, child]);
    }
    children.sort((a, b) => span(a[1])[0] - span(b[1])[0]);
    const [start, end] = span(node);
    const parts = {};
    let out = "";
    let at = start;
    for (const [key, child] of children) {
      const rendered = visit(child, key, node);
      parts[key] = rendered;
      const [from, to] = span(child);
      out += text.slice(at, from) + rendered;
      at = to;
    }
    return { out: out + text.slice(at, end), parts };
  }

  /// The same for a block of assembly: its numbers grow by one, its stores and assignments fall away.
  function assembly(node, chosen) {
    const edits = []; // [place, text]
    const switched = (at, from, to) => `eq(${chosen}, ${born(at, from, to).match(/\d+/)[0]})`;
    (function walk(at, statement) {
      if (!at || typeof at !== "object") return;
      if (at.nodeType === "YulExpressionStatement" || at.nodeType === "YulAssignment") {
        statement = raw(at);
        edits.push([span(at)[0], `if iszero(${switched(at, statement, "nothing")}) { `], [span(at)[1], " }"]);
      }
      if (at.nodeType === "YulVariableDeclaration") statement = raw(at);
      if (at.nodeType === "YulLiteral" && at.kind === "number") {
        edits.push([span(at)[0], "add("], [span(at)[1], `, ${switched(at, `${raw(at)} in ${statement ?? "a condition"}`, `${raw(at)} + 1`)})`]);
      }
      for (const child of Object.values(at)) walk(child, statement);
    })(node.AST);
    const [start, end] = span(node);
    let out = "";
    let at = start;
    // Ends before beginnings at one place; what began later ends first.
    for (const [place, added] of edits.map((e, i) => [...e, i]).sort((a, b) => a[0] - b[0] || b[2] - a[2])) {
      out += text.slice(at, place) + added;
      at = place;
    }
    return out + text.slice(at, end);
  }

  function visit(node, key, parent) {
    switch (node.nodeType) {
      case "InlineAssembly": {
        const chosen = `chosen${++blocks}`; // read before: a pure function may not read it in assembly
        return `uint256 ${chosen} = Mutant.number(); ${assembly(node, chosen)}`;
      }
      case "ModifierInvocation":
        if (raw(node) !== "nonReentrant") return raw(node);
        return `nonReentrantUnless(${born(node, "nonReentrant", "nothing")})`;
      case "Conditional": {
        const { out, parts } = render(node);
        const condition = raw(node.condition);
        if (node.condition.nodeType === "BinaryOperation") return out; // its operator is swapped
        const never = born(node, `${condition} ?`, "false ?");
        const always = born(node, `${condition} ?`, "true ?");
        return `(${never} ? false : ${always} ? true : (${parts.condition})) ${out.slice(parts.condition.length)}`;
      }
      case "VariableDeclaration":
      case "ElementaryTypeName":
        return raw(node);
      case "Literal": {
        const converted = parent.expression?.nodeType === "ElementaryTypeNameExpression";
        // Behind a switch a literal has a small type of its own: no power of one.
        if (node.kind !== "number" || node.subdenomination || !/^[0-9_]+$/.test(raw(node)) || converted || parent.operator === "**") return raw(node);
        // Nor a shift of one: it would lose what is shifted out.
        if (parent.operator === "<<" && key === "leftExpression") return raw(node);
        // Zero stands for no bytes here: one has no such type.
        if (/(specHash|anchor|product|\.r|\.vs)$/.test(raw(parent.leftExpression ?? node))) return raw(node);
        const more = String(BigInt(raw(node).replace(/_/g, "")) + 1n);
        const [from, to] = span(node);
        const [first, last] = span(parent);
        const changed = text.slice(first, from) + more + text.slice(to, last);
        return `(${born(parent, raw(parent), changed)} ? ${more} : ${raw(node)})`;
      }
      case "BinaryOperation": {
        const { parts } = render(node);
        let out = `${parts.leftExpression} ${node.operator} ${parts.rightExpression}`;
        for (const swap of SWAPS[node.operator] ?? []) {
          const to = `${raw(node.leftExpression)} ${swap} ${raw(node.rightExpression)}`;
          const changed = `${parts.leftExpression} ${swap} ${parts.rightExpression}`;
          out = `(${born(node, raw(node), to)} ? (${changed}) : (${out}))`;
        }
        return out;
      }
      case "IfStatement": {
        const { out, parts } = render(node);
        const condition = raw(node.condition);
        const never = born(node, `if (${condition})`, "if (false)");
        const always = born(node, `if (${condition})`, "if (true)");
        return out.replace(parts.condition, () => `${never} ? false : ${always} ? true : (${parts.condition})`);
      }
      case "ExpressionStatement":
      case "EmitStatement": {
        if (key === "loopExpression" || key === "initializationExpression") return raw(node);
        const { out } = render(node);
        return `if (!${born(node, raw(node), "nothing")}) ${out}`; // the semicolon follows in the text
      }
      case "FunctionDefinition": {
        name = node.kind === "constructor" ? "constructor" : node.name;
        return node.body ? render(node, ["parameters", "returnParameters"]).out : raw(node);
      }
      default:
        return render(node).out;
    }
  }

  const { out } = render(sources[file].ast);
  const [start] = span(sources[file].ast);
  const up = "../".repeat(file.split("/").length - 2) || "./";
  const whole = text.slice(0, start) + out;
  return whole.replace(/^(pragma [^\n]*\n)/m, `$1import {Mutant} from "${up}Mutant.sol";\n`);
}

const SWITCH = `// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;
library Mutant {
    function _chosen() private view returns (uint256) { return uint160(address(block.coinbase)); }
    function number() internal pure returns (uint256) {
        function() internal view returns (uint256) looks = _chosen;
        function() internal pure returns (uint256) asPure;
        assembly ("memory-safe") { asPure := looks }
        return asPure();
    }
    function on(uint256 n) internal pure returns (bool) { return number() == n; }
}
`;

const UNGUARDED = `    modifier nonReentrantUnless(bool off) {
        if (!off) _nonReentrantBefore();
        _;
        if (!off) _nonReentrantAfter();
    }

    modifier nonReentrant() {`;

// Forge asks the compiler for the same ABIs before each filtered run: answered from a folder, that costs milliseconds.
const COMPILER = `#!/bin/sh
kept="$(dirname "$0")/answers"
mkdir -p "$kept"
question="$kept/question.$$"
if [ "$1" = --version ]; then echo --version >"$question"; else cat >"$question"; fi
answer="$kept/$(sha256sum <"$question" | cut -c1-64)"
[ -f "$answer" ] || { node "${path.join(root, "tools", "solc-npm.js")}" "$@" <"$question" >"$question.out" && mv "$question.out" "$answer"; }
rm "$question"
exec cat "$answer"
`;

// The least optimisation that compiles: via-IR without it runs out of stack, with all of it takes minutes.
const COMPILE = `
[profile.default.optimizer_details]
yul = true

[profile.default.optimizer_details.yulDetails]
stackAllocation = true
optimizerSteps = "u"
`;

function prepare() {
  for (const old of ["src", "test", "failures", "cache/invariant"]) fs.rmSync(path.join(work, old), { recursive: true, force: true });
  fs.mkdirSync(work, { recursive: true });
  const copy = (what) => fs.cpSync(path.join(root, what), path.join(work, what), { recursive: true });
  ["src", "test", "foundry.toml", "node_modules/@openzeppelin/contracts"].forEach(copy);
  for (const file of TARGETS) fs.writeFileSync(path.join(work, file), schema(file));
  fs.writeFileSync(path.join(work, "src/Mutant.sol"), SWITCH);
  const guard = path.join(work, "node_modules/@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol");
  fs.writeFileSync(guard, fs.readFileSync(guard, "utf8").replace("    modifier nonReentrant() {", UNGUARDED));
  fs.appendFileSync(path.join(work, "foundry.toml"), COMPILE);
  fs.writeFileSync(path.join(work, "solc"), COMPILER, { mode: 0o755 });
}

function environment(n, more) {
  return {
    ...process.env,
    FOUNDRY_SOLC: path.join(work, "solc"),
    FOUNDRY_OPTIMIZER: "false",
    FOUNDRY_CODE_SIZE_LIMIT: "1000000",
    FOUNDRY_DYNAMIC_TEST_LINKING: "true", // else the vault is compiled again into each test
    FOUNDRY_BLOCK_COINBASE: "0x" + n.toString(16).padStart(40, "0"),
    FOUNDRY_FUZZ_RUNS: "12",
    FOUNDRY_INVARIANT_RUNS: "2",
    // A story that failed for one mutant is told first to the next, cut short: too short to reach what each must.
    FOUNDRY_INVARIANT_FAILURE_PERSIST_DIR: path.join(work, "failures", String(n)),
    ...more,
  };
}
/// The quick tests kill most; what they leave meets the invariants. Both are always in the build.
const QUICK = ["--no-match-path", "test/{gas,invariant,symbolic}/**"];
const SLOW = ["--match-path", "test/invariant/*.t.sol"];
/// What survives unexplained meets the project's own settings: many more inputs and longer stories.
const FULL = { FOUNDRY_FUZZ_RUNS: "1000", FOUNDRY_INVARIANT_RUNS: undefined };

/// What earlier runs killed: one line a mutant, so that a run that is cut goes on where it was.
const KILLS = path.join(work, "kills.jsonl");

/// A mutant's name: it stays the same when comments or other mutants move it.
function nameOf(n) {
  const m = mutants[n];
  const alike = mutants.slice(1, n).filter((other) => other.file === m.file && same(other, m)).length;
  return `${m.file} ${m.in}: ${m.from} -> ${m.to} #${alike}`;
}

const filesIn = (folder) => fs.readdirSync(folder, { recursive: true }).map((name) => path.join(folder, name))
  .filter((name) => fs.statSync(name).isFile());

/// The hash of files without their comments: a comment kills nothing.
function hashOf(files) {
  const hash = crypto.createHash("sha256");
  for (const file of [...files].sort()) hash.update(fs.readFileSync(file, "utf8").replace(/^\s*\/\/.*\n/gm, ""));
  return hash.digest("hex").slice(0, 16);
}

/// A test file and all that it imports, but for contracts.
function withImports(file, seen = new Set()) {
  if (seen.has(file) || !file.startsWith(path.join(work, "test"))) return seen;
  seen.add(file);
  for (const [, from] of fs.readFileSync(file, "utf8").matchAll(/ from "(\.[^"]+)";/g)) {
    withImports(path.join(path.dirname(file), from), seen);
  }
  return seen;
}

/// What a kill by a suite depends on: the contracts, and the suite with all that it uses.
const contracts = hashOf([path.join(root, "package-lock.json"), ...filesIn(path.join(root, "src"))]);
function groundsOf(suite) {
  const file = path.join(work, suite);
  if (!fs.existsSync(file)) return undefined;
  return `${contracts} ${hashOf([...withImports(file), ...filesIn(path.join(work, "test/vectors"))])}`;
}

/// The suites by the names of mutants that they killed in an earlier run, on grounds that still hold.
function killedBefore() {
  if (options.includes("--fresh") || !fs.existsSync(KILLS)) return new Map();
  const lines = fs.readFileSync(KILLS, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  return new Map(lines.filter(({ suite, grounds }) => grounds === groundsOf(suite)).map(({ name, suite }) => [name, suite]));
}

function noteKill(n, suite) {
  if (suite !== NAMELESS) fs.appendFileSync(KILLS, JSON.stringify({ name: nameOf(n), suite, grounds: groundsOf(suite) }) + "\n");
}

/// Stands for the suite where forge did not say it.
const NAMELESS = "a suite without a name";

/// The suite in which the first test failed.
function failed(said) {
  const upTo = said.slice(0, said.indexOf("[FAIL"));
  return [...upTo.matchAll(/^Ran \d+ tests? for ([^:]+):/gm)].pop()?.[1];
}

/// Runs tests against mutant `n` until one fails. Resolves to its suite, or to nothing if all pass.
function run(n, which, more = {}) {
  return new Promise((done) => {
    const child = spawn(forge, ["test", "--fail-fast", "--threads", "1", ...which], {
      cwd: work, env: environment(n, more), stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    child.stdout.on("data", (x) => (said += x));
    child.stderr.on("data", (x) => (said += x));
    const timer = setTimeout(() => child.kill("SIGKILL"), 3_600_000); // gas ends every loop long before
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      // A failure that is not a failed test would count a broken build as a kill.
      if (signal || (code !== 0 && !/\[FAIL/.test(said))) throw new Error(`mutant ${n}: no test failed:\n${said.slice(-3000)}`);
      done(code === 0 ? undefined : failed(said) ?? NAMELESS);
    });
  });
}

/// The suite that kills mutant `n`; nothing if it survives. Not the likeliest suite first: for each choice of suites forge
/// compiles anew, which takes longer than all of them.
async function killer(n) {
  const suite = (await run(n, QUICK)) || (await run(n, SLOW));
  if (suite) noteKill(n, suite);
  return suite;
}

/// Returns those of the mutants that `kills` finds no suite for.
async function survivors(numbers, kills) {
  const left = [...numbers];
  const alive = [];
  const worker = async () => {
    for (let n = left.shift(); n !== undefined; n = left.shift()) {
      const suite = await kills(n);
      if (!suite) alive.push(n);
      if (options.includes("--verbose")) console.log(`${numbers.length - left.length}/${numbers.length} ${suite ?? "SURVIVED"} ${n} ${show(mutants[n])}`);
    }
  };
  await Promise.all(Array.from({ length: JOBS }, worker));
  return alive.sort((a, b) => a - b);
}

const show = (m) => `${m.file}:${m.line} ${m.in}: \`${m.from}\` -> \`${m.to}\``;
const same = (entry, m) => entry.in === m.in && entry.from === m.from && entry.to === m.to;

(async () => {
  prepare();
  if (options.includes("--list")) return mutants.forEach((m, n) => m && console.log(n, show(m)));
  const build = spawnSync(forge, ["build", "--skip", "test/gas/**", "--skip", "test/symbolic/**"], {
    cwd: work, env: environment(0), encoding: "utf8",
  });
  if (build.status !== 0) throw new Error(`the mutants do not compile:\n${(build.stdout + build.stderr).slice(-6000)}`);
  for (const which of [QUICK, SLOW]) if (await run(0, which)) throw new Error("a test fails without any mutant");
  const only = options.includes("--only");
  const asked = only ? options[options.indexOf("--only") + 1].split(",").map(Number) : [];
  const numbers = only ? asked : mutants.map((_, n) => n).slice(1);
  const before = killedBefore();
  const left = await survivors(numbers.filter((n) => !before.has(nameOf(n))), killer);

  const allowed = JSON.parse(fs.readFileSync(path.join(__dirname, "mutants-allowed.json"), "utf8"));
  const explained = left.filter((n) => allowed.some((entry) => entry.why && same(entry, mutants[n])));
  const unexplained = left.filter((n) => !explained.includes(n));
  const bare = await survivors(unexplained, async (n) => {
    const suite = (await run(n, QUICK, FULL)) || (await run(n, SLOW, FULL));
    if (suite) noteKill(n, suite);
    return suite;
  });
  const stale = only ? [] : allowed.filter((entry) => !explained.some((n) => same(entry, mutants[n])));
  for (const n of bare) console.error(`survived: ${n} ${show(mutants[n])}`);
  for (const entry of stale) console.error(`explained but killed or gone: ${show(entry)}`);
  console.log(`mutants: ${numbers.length} in all, ${numbers.length - explained.length - bare.length} killed, ` +
    `${explained.length} explained, ${bare.length} survived`);
  process.exitCode = bare.length + stale.length ? 1 : 0;
})();
