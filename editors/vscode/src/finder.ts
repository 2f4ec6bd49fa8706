/** Where torchlint is: nothing here knows of VS Code, so that it is tested without. */

import { execFile } from "node:child_process";
import * as path from "node:path";

/** A program with its first arguments, to which those of a command are added. */
export interface Launcher {
  readonly command: string;
  readonly args: readonly string[];
}

/** What was tried, and what came of it. */
export interface Search {
  readonly found?: Launcher;
  readonly version?: string;
  readonly tried: readonly string[];
}

/** What a search begins with; empty words are passed over. */
export interface Places {
  /** The setting `torchlint.path`; if it is set, nothing else is tried. */
  readonly configured: string;
  /** The interpreter that is selected in the editor. */
  readonly interpreter: string;
  /** The folders that are open. */
  readonly folders: readonly string[];
}

/** Return the launchers to try, best first. */
export function candidates(places: Places, platform: string = process.platform): Launcher[] {
  if (places.configured !== "") {
    return [{ command: places.configured, args: [] }];
  }
  const bin = platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  const interpreters = places.folders.map((folder) => path.join(folder, ".venv", ...bin));
  if (places.interpreter !== "") {
    interpreters.unshift(places.interpreter);
  }
  const modules = interpreters.map((command) => ({ command, args: ["-m", "torchlint"] }));
  return [...modules, { command: "torchlint", args: [] }];
}

/** Return the first launcher that serves editors, with its version and what failed before it. */
export async function find(places: Places): Promise<Search> {
  const tried: string[] = [];
  for (const each of candidates(places)) {
    const said = await run(each, ["version"]);
    const version = /^torchlint (\S+)/.exec(said.output)?.[1];
    if (version !== undefined) {
      return { found: each, version, tried };
    }
    tried.push(`${[each.command, ...each.args].join(" ")}: ${said.reason}`);
  }
  return { tried };
}

/** Return what a command of torchlint prints, and why it printed nothing. */
export function run(
  launcher: Launcher,
  words: readonly string[],
): Promise<{ output: string; reason: string }> {
  return new Promise((resolve) => {
    execFile(
      launcher.command,
      [...launcher.args, ...words],
      { maxBuffer: 1 << 24 },
      (error, stdout, stderr) => {
        const last = stderr.trim().split("\n").at(-1) ?? "";
        resolve({ output: stdout, reason: error ? last || error.message : "no answer" });
      },
    );
  });
}

/** Return a line for a shell of this platform that runs a program with its arguments. */
export function shellLine(words: readonly string[], platform: string = process.platform): string {
  if (platform === "win32") {
    return `& ${words.map((word) => `'${word.replaceAll("'", "''")}'`).join(" ")}`;
  }
  return words
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ");
}
