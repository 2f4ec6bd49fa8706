import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { test } from "node:test";

import { Editor } from "./editor";

const python = process.env["TORCHLINT_PYTHON"] ?? "python3";
const torchlint = path.join(path.dirname(python), "torchlint");
const SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n";
const bundle = path.resolve(__dirname, "..", "..", "dist", "extension.js");

interface Extension {
  activate(context: { subscriptions: { dispose(): unknown }[] }): Promise<void>;
}

test("the extension starts the server, which publishes findings with the settings", async (run) => {
  const folder = mkdtempSync(path.join(tmpdir(), "torchlint-"));
  const file = path.join(folder, "train.py");
  writeFileSync(file, SLOW);
  const settings: Record<string, unknown> = { path: torchlint, settings: {} };
  const editor = new Editor(file, SLOW, settings);
  editor.install();
  const extension = require(bundle) as Extension;
  const subscriptions: { dispose(): unknown }[] = [];
  // A server that is left running would keep this process alive.
  run.after(() => subscriptions.forEach((each) => each.dispose()));
  const published = editor.findings(1);
  await extension.activate({ subscriptions });
  const found = await published;
  assert.deepEqual(editor.messages, [], editor.log.join("\n"));
  assert.equal(found[0]!.source, "torchlint");
  assert.match(JSON.stringify(found[0]!.code), /TL801/);

  await editor.commands.get("torchlint.fixAll")!();
  assert.deepEqual(
    editor.applied.map((each) => [each.range.start.line, each.newText]),
    [[2, ""]],
  );

  const page = await editor.providers[0]!["provideTextDocumentContent"]!({
    path: "TL801.md",
  } as never);
  assert.match(String(page), /detect_anomaly/);
  assert.deepEqual(
    [...editor.commands.keys()].sort(),
    ["explain", "fixAll", "restart", "showLog", "verify"].map((name) => `torchlint.${name}`),
  );

  settings["settings"] = { ignore: ["TL801"] };
  const silenced = editor.findings(0);
  editor.commands.get("torchlint.restart")!();
  await silenced;

  settings["path"] = "/nowhere/torchlint";
  await new Promise((resolve) => {
    editor.messages.push = (...said: string[]): number => {
      resolve(said);
      assert.match(said[0]!, /was not found/);
      return said.length;
    };
    editor.commands.get("torchlint.restart")!();
  });
  assert.equal(editor.status.text, "$(warning) torchlint");
});
