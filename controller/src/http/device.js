"use strict";
// Looks a device up by its code, and approves it with the browser's wallet. Speaks to this controller alone.
const at = (id) => document.getElementById(id);
const say = (text) => { at("said").textContent = text; };

async function call(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) {
    const problem = JSON.parse(text);
    throw new Error(`${problem.title} ${problem.detail}. ${problem.suggestion}.`);
  }
  return text === "" ? null : JSON.parse(text);
}

function hide() {
  at("device").hidden = true;
  at("approve").hidden = true;
}

async function look() {
  hide();
  say("");
  const device = await call("v1/auth/device/look", { user_code: at("code").value });
  at("code").value = device.user_code;
  at("name").textContent = device.name;
  at("from").textContent = device.from;
  at("asked").textContent = new Date(device.asked_ms).toLocaleString();
  at("scopes").textContent = device.scopes.join(", ");
  at("device").hidden = false;
  at("approve").hidden = false;
}

function hex(text) {
  const bytes = new TextEncoder().encode(text);
  return "0x" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function approve() {
  if (!window.ethereum) {
    throw new Error("There is no wallet in this browser.");
  }
  const [account] = await window.ethereum.request({ method: "eth_requestAccounts" });
  const nonce = await call("v1/auth/nonce", { account: account.toLowerCase(), user_code: at("code").value });
  const signature = await window.ethereum.request({ method: "personal_sign", params: [hex(nonce.message), account] });
  await call("v1/auth/device/siwe", { message: nonce.message, signature });
  hide();
  say("The device was let in. You can close this page.");
}

const guarded = (deed) => () => deed().catch((error) => say(error.message || String(error)));
at("look").addEventListener("click", guarded(look));
at("approve").addEventListener("click", guarded(approve));
at("code").addEventListener("input", hide);
if (location.hash.length > 1) {
  at("code").value = decodeURIComponent(location.hash.slice(1));
  guarded(look)();
}
