import assert from "node:assert/strict";
import { test } from "node:test";

import { candidates, find, run, shellLine } from "../src/finder";
import { rulesOf, statusText } from "../src/rules";
import { serverSettings } from "../src/settings";

const python = process.env["TORCHLINT_PYTHON"] ?? "python3";
const nowhere = { configured: "", interpreter: "", folders: [] };

test("the configured path is the only one that is tried", () => {
  const places = { configured: "/opt/torchlint", interpreter: "/bin/python", folders: ["/work"] };
  assert.deepEqual(candidates(places), [{ command: "/opt/torchlint", args: [] }]);
});

test("the selected interpreter comes first, then .venv, then the PATH", () => {
  const places = { ...nowhere, interpreter: "/conda/bin/python", folders: ["/work"] };
  assert.deepEqual(
    candidates(places, "linux").map((each) => each.command),
    ["/conda/bin/python", "/work/.venv/bin/python", "torchlint"],
  );
  assert.match(candidates({ ...nowhere, folders: ["/work"] }, "win32")[0]!.command, /Scripts.python\.exe$/);
});

test("an interpreter with torchlint is found, with its version", async () => {
  const search = await find({ ...nowhere, interpreter: python });
  assert.deepEqual(search.found, { command: python, args: ["-m", "torchlint"] });
  assert.match(search.version ?? "", /^\d+\.\d+/);
  assert.deepEqual(search.tried, []);
});

test("what does not run is told with its reason", async () => {
  const search = await find({ ...nowhere, configured: "/nowhere/torchlint" });
  assert.equal(search.found, undefined);
  assert.match(search.tried.join(), /^\/nowhere\/torchlint: .*ENOENT/);
  const other = await find({ ...nowhere, configured: process.execPath });
  assert.equal(other.found, undefined);
});

test("the page of a rule is printed", async () => {
  const said = await run({ command: python, args: ["-m", "torchlint"] }, ["explain", "--", "TL801"]);
  assert.match(said.output, /TL801/);
});

test("words for a shell keep their spaces and quotes", () => {
  assert.equal(shellLine(["python", "a b.py", "it's"], "linux"), `python 'a b.py' 'it'\\''s'`);
  assert.equal(shellLine(["python", "it's"], "win32"), "& 'python' 'it''s'");
});

test("the server gets the keys of a configuration file alone", () => {
  assert.deepEqual(serverSettings({ path: "x", settings: { ignore: ["TL4"] } }), { ignore: ["TL4"] });
  for (const section of [undefined, null, {}, { settings: null }, { settings: ["TL4"] }]) {
    assert.deepEqual(serverSettings(section), {});
  }
});

test("rules are those of torchlint, each once", () => {
  const ours = { source: "torchlint", code: { value: "TL201", target: "" } };
  assert.deepEqual(rulesOf([ours, { source: "Ruff", code: "E501" }, ours]), ["TL201"]);
  assert.equal(statusText("0.1", 3), "$(zap) torchlint: 3");
  assert.equal(statusText(undefined, 0), "$(warning) torchlint");
});
