/** The VS Code extension: finds torchlint, runs its language server, and offers its commands. */

import * as vscode from "vscode";
import { LanguageClient, RevealOutputChannelOn } from "vscode-languageclient/node";

import { find, Launcher, run, shellLine } from "./finder";
import { ruleOf, rulesOf, statusText } from "./rules";
import { SECTION, serverSettings } from "./settings";

const FIX_ALL = "source.fixAll.torchlint";
const PAGES = "torchlint-rule";
const INSTALL = "pip install 'torchlint[lsp]'";
const PYTHON = "ms-python.python";

/** The part of the Python extension's interface that is used. */
interface PythonExtension {
  readonly environments: {
    getActiveEnvironmentPath(): { readonly path: string };
    resolveEnvironment(
      path: unknown,
    ): Promise<{ readonly executable: { readonly uri?: vscode.Uri } } | undefined>;
    readonly onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

/** The server, and what is shown of it. */
class Torchlint implements vscode.Disposable, vscode.TextDocumentContentProvider {
  private client: LanguageClient | undefined;
  private launcher: Launcher | undefined;
  private version: string | undefined;
  private starting: Promise<void> = Promise.resolve();
  private readonly log = vscode.window.createOutputChannel("torchlint", { log: true });
  private readonly status = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Right);

  constructor() {
    this.status.name = "torchlint";
    this.status.command = "torchlint.showLog";
  }

  dispose(): void {
    void this.stop();
    this.status.dispose();
    this.log.dispose();
  }

  /** Start the server again, after the start that is under way. */
  restart(): Promise<void> {
    this.starting = this.starting.then(() => this.started()).catch((error: unknown) => {
      this.log.error(String(error));
      void vscode.window.showErrorMessage(`torchlint does not serve: ${String(error)}`);
    });
    return this.starting;
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    await client?.dispose();
  }

  showLog(): void {
    this.log.show();
  }

  /** Show how many findings the text in front has. */
  showStatus(): void {
    const document = vscode.window.activeTextEditor?.document;
    if (document?.languageId !== "python") {
      this.status.hide();
      return;
    }
    const found = vscode.languages.getDiagnostics(document.uri).filter((each) => ruleOf(each));
    this.status.text = statusText(this.version, found.length);
    this.status.tooltip =
      this.version === undefined
        ? "torchlint was not found; click for the log"
        : `torchlint ${this.version}: ${found.length} findings`;
    this.status.show();
  }

  /** Apply all safe fixes to the text in front. */
  async fixAll(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined) {
      return;
    }
    const { document } = editor;
    const everything = new vscode.Range(0, 0, document.lineCount, 0);
    const actions = await vscode.commands.executeCommand<vscode.CodeAction[]>(
      "vscode.executeCodeActionProvider",
      document.uri,
      everything,
      FIX_ALL,
      1,
    );
    const edit = actions.find((each) => each.kind?.value === FIX_ALL)?.edit;
    if (edit === undefined || !(await vscode.workspace.applyEdit(edit))) {
      void vscode.window.showInformationMessage("torchlint: no safe fix for this file.");
    }
  }

  /** Show the page of a rule, by default of one on the line of the cursor. */
  async explain(code?: string): Promise<void> {
    const chosen = code ?? (await this.chosenRule());
    if (chosen !== undefined) {
      const uri = vscode.Uri.parse(`${PAGES}:${chosen}.md`);
      await vscode.commands.executeCommand("markdown.showPreview", uri);
    }
  }

  /** Return the page of a rule as Markdown. */
  async provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
    const code = uri.path.replace(/\.md$/, "");
    if (this.launcher === undefined) {
      return "torchlint was not found.";
    }
    const said = await run(this.launcher, ["explain", "--examples", "--", code]);
    return said.output || said.reason;
  }

  /** Run `torchlint verify` on the file in front, where the user sees it and can stop it. */
  async verify(): Promise<void> {
    const document = vscode.window.activeTextEditor?.document;
    if (document === undefined || this.launcher === undefined) {
      return;
    }
    await document.save();
    const folder = vscode.workspace.getWorkspaceFolder(document.uri)?.uri.fsPath;
    const terminal = vscode.window.createTerminal({
      name: "torchlint verify",
      ...(folder === undefined ? {} : { cwd: folder }),
    });
    terminal.show();
    const { command, args } = this.launcher;
    terminal.sendText(shellLine([command, ...args, "verify", document.uri.fsPath]));
  }

  private async chosenRule(): Promise<string | undefined> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined) {
      return undefined;
    }
    const all = vscode.languages.getDiagnostics(editor.document.uri);
    const here = all.filter((each) => each.range.contains(editor.selection.active));
    const codes = rulesOf(rulesOf(here).length > 0 ? here : all);
    return codes.length > 1 ? vscode.window.showQuickPick(codes) : codes[0];
  }

  private async started(): Promise<void> {
    await this.stop();
    const configured = vscode.workspace.getConfiguration(SECTION).get("path", "");
    const folders = (vscode.workspace.workspaceFolders ?? []).map((each) => each.uri.fsPath);
    const places = { configured, interpreter: await selectedInterpreter(), folders };
    const search = await find(places);
    search.tried.forEach((line) => this.log.warn(line));
    this.launcher = search.found;
    this.version = search.version;
    this.showStatus();
    if (search.found === undefined) {
      this.offerToInstall(places.interpreter);
      return;
    }
    const { command, args } = search.found;
    this.log.info(`torchlint ${search.version}: ${[command, ...args].join(" ")}`);
    this.client = new LanguageClient(
      SECTION,
      "torchlint",
      { command, args: [...args, "server"] },
      {
        documentSelector: [
          { language: "python", scheme: "file" },
          { language: "python", scheme: "untitled" },
          { language: "python", scheme: "vscode-notebook-cell" },
        ],
        outputChannel: this.log,
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        synchronize: { configurationSection: SECTION },
        middleware: {
          provideWorkspaceDiagnostics: (known, token, report, next) =>
            vscode.workspace.getConfiguration(SECTION).get("diagnosticMode") === "workspace"
              ? next(known, token, report)
              : { items: [] },
          workspace: {
            configuration: async (params, token, next) => {
              const answer = await next(params, token);
              return Array.isArray(answer) ? answer.map(serverSettings) : answer;
            },
          },
        },
      },
    );
    await this.client.start();
  }

  private offerToInstall(interpreter: string): void {
    const said = "torchlint was not found in the selected Python.";
    void vscode.window.showWarningMessage(said, "Install", "Show Log").then((answer) => {
      if (answer === "Install") {
        const terminal = vscode.window.createTerminal("torchlint");
        terminal.show();
        const words = [interpreter || "python", "-m", "pip", "install", "torchlint[lsp]"];
        terminal.sendText(interpreter === "" ? INSTALL : shellLine(words));
      } else if (answer === "Show Log") {
        this.showLog();
      }
    });
  }
}

/** Return the interpreter that the Python extension has selected, empty without that extension. */
async function selectedInterpreter(): Promise<string> {
  const environments = (await pythonExtension())?.environments;
  const selected = await environments?.resolveEnvironment(environments.getActiveEnvironmentPath());
  return selected?.executable.uri?.fsPath ?? "";
}

async function pythonExtension(): Promise<PythonExtension | undefined> {
  return vscode.extensions.getExtension<PythonExtension>(PYTHON)?.activate();
}

/** Called by VS Code when the first Python file is opened. */
export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const torchlint = new Torchlint();
  const restart = (): void => void torchlint.restart();
  const show = (): void => torchlint.showStatus();
  context.subscriptions.push(
    torchlint,
    vscode.commands.registerCommand("torchlint.fixAll", () => torchlint.fixAll()),
    vscode.commands.registerCommand("torchlint.explain", (code?: string) => torchlint.explain(code)),
    vscode.commands.registerCommand("torchlint.verify", () => torchlint.verify()),
    vscode.commands.registerCommand("torchlint.restart", restart),
    vscode.commands.registerCommand("torchlint.showLog", () => torchlint.showLog()),
    vscode.workspace.registerTextDocumentContentProvider(PAGES, torchlint),
    vscode.window.onDidChangeActiveTextEditor(show),
    vscode.languages.onDidChangeDiagnostics(show),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration(`${SECTION}.path`)) {
        restart();
      }
    }),
  );
  const python = await pythonExtension().catch(() => undefined);
  if (python !== undefined) {
    const { environments } = python;
    context.subscriptions.push(environments.onDidChangeActiveEnvironmentPath(restart));
  }
  await torchlint.restart();
}
