#!/usr/bin/env node
// slither.js REPORT: fails if slither's JSON report has a finding of medium or high impact that tools/slither-allowed.json
// does not explain, or if an explanation there has lost its finding.
const fs = require("fs");
const path = require("path");
const report = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const allowed = JSON.parse(fs.readFileSync(path.join(__dirname, "slither-allowed.json"), "utf8"));
if (!report.success) throw new Error(`slither did not finish: ${report.error}`);

const findings = (report.results.detectors ?? []).filter((f) => ["High", "Medium"].includes(f.impact));
// Where: the function (or variable) first named; what: the expression, without its position in the file.
const functionOf = (f) => {
  let at = f.elements[0];
  while (at.type_specific_fields?.parent && at.type !== "function") at = at.type_specific_fields.parent;
  const parent = at.type_specific_fields?.parent?.name;
  return parent ? `${parent}.${at.name}` : at.name;
};
const told = (f) => f.description.replace(/ \(src\/[^)]*\)/g, "").replace(/\s+/g, " ").trim();
const matches = (entry, f) => entry.check === f.check && entry.in === functionOf(f) && told(f).includes(entry.says);

const bare = findings.filter((f) => !allowed.some((entry) => matches(entry, f)));
const stale = allowed.filter((entry) => !findings.some((f) => matches(entry, f)));
for (const f of bare) console.error(`unexplained: ${f.impact} ${f.check} in ${functionOf(f)}: ${told(f)}`);
for (const entry of stale) console.error(`explained but not found any more: ${entry.check} in ${entry.in}: ${entry.says}`);
const mark = (entry) => !entry.why;
for (const entry of allowed.filter(mark)) console.error(`no reason given: ${entry.check} in ${entry.in}`);
console.log(`slither: ${findings.length} findings of medium or high impact, ${findings.length - bare.length} explained`);
process.exit(bare.length + stale.length + allowed.filter(mark).length ? 1 : 0);
