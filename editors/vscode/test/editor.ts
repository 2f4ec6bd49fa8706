/** As much of VS Code's interface as the extension and its language client use, in plain Node. */

import Module from "node:module";
import { pathToFileURL, fileURLToPath } from "node:url";

type Listener = (event: unknown) => unknown;

class Disposable {
  static from(...all: { dispose(): unknown }[]): Disposable {
    return new Disposable(() => all.forEach((each) => each.dispose()));
  }

  constructor(private readonly ended: () => unknown = () => undefined) {}
  dispose(): void {
    this.ended();
  }
}

class EventEmitter {
  private readonly listeners = new Set<Listener>();
  readonly event = (listener: Listener): Disposable => {
    this.listeners.add(listener);
    return new Disposable(() => this.listeners.delete(listener));
  };
  fire(event: unknown): void {
    this.listeners.forEach((listener) => listener(event));
  }
  dispose(): void {
    this.listeners.clear();
  }
}

class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}
}

class Range {
  readonly start: Position;
  readonly end: Position;
  constructor(...at: [Position, Position] | [number, number, number, number]) {
    [this.start, this.end] =
      at.length === 2 ? at : [new Position(at[0], at[1]), new Position(at[2], at[3])];
  }
  contains(place: Position): boolean {
    return this.start.line <= place.line && place.line <= this.end.line;
  }
}

class Uri {
  private constructor(private readonly text: string) {}
  static parse(text: string): Uri {
    return new Uri(text);
  }
  static file(path: string): Uri {
    return new Uri(pathToFileURL(path).href);
  }
  get scheme(): string {
    return this.text.split(":")[0]!;
  }
  get path(): string {
    return this.scheme === "file" ? this.fsPath : this.text.slice(this.scheme.length + 1);
  }
  get fsPath(): string {
    return fileURLToPath(this.text);
  }
  toString(): string {
    return this.text;
  }
}

class TabInputText {
  constructor(readonly uri: Uri) {}
}

class Diagnostic {
  source?: string;
  code?: unknown;
  constructor(
    readonly range: Range,
    readonly message: string,
    readonly severity: number,
  ) {}
}

class CodeActionKind {
  static readonly Empty = new CodeActionKind("");
  static readonly QuickFix = new CodeActionKind("quickfix");
  static readonly Source = new CodeActionKind("source");
  constructor(readonly value: string) {}
  append(part: string): CodeActionKind {
    return new CodeActionKind(this.value === "" ? part : `${this.value}.${part}`);
  }
}

class CodeAction {
  edit?: WorkspaceEdit;
  constructor(
    readonly title: string,
    readonly kind?: CodeActionKind,
  ) {}
}

class TextEdit {
  constructor(
    readonly range: Range,
    readonly newText: string,
  ) {}
}

class WorkspaceEdit {
  readonly changes: TextEdit[] = [];
  set(_uri: Uri, edits: (TextEdit | [TextEdit, unknown])[]): void {
    this.changes.push(...edits.map((each) => (Array.isArray(each) ? each[0] : each)));
  }
  replace(_uri: Uri, range: Range, text: string): void {
    this.changes.push(new TextEdit(range, text));
  }
  insert(uri: Uri, place: Position, text: string): void {
    this.replace(uri, new Range(place, place), text);
  }
  delete(uri: Uri, range: Range): void {
    this.replace(uri, range, "");
  }
}

interface CodeActionProvider {
  provideCodeActions(...words: unknown[]): Promise<CodeAction[]>;
  resolveCodeAction(action: CodeAction, token: unknown): Promise<CodeAction>;
}

class CancellationTokenSource {
  token = { isCancellationRequested: false, onCancellationRequested: new EventEmitter().event };
  cancel(): void {}
  dispose(): void {}
}

/** Return something that can be called, constructed and asked for any member. */
function anything(): unknown {
  const members = new Map<PropertyKey, unknown>();
  return new Proxy(class {}, {
    get(target, name) {
      if (name === "prototype") {
        return target.prototype;
      }
      if (name === Symbol.toPrimitive || name === "then") {
        return undefined;
      }
      if (!members.has(name)) {
        members.set(name, /^on[A-Z]/.test(String(name)) ? new EventEmitter().event : anything());
      }
      return members.get(name);
    },
    apply: () => new Disposable(),
    construct: () => ({}),
  });
}

/** Return an object that has the given members, and anything else. */
function partly(members: object): object {
  return Object.setPrototypeOf(members, anything() as object) as object;
}

/** An editor with one document open. */
export class Editor {
  readonly commands = new Map<string, (...words: unknown[]) => unknown>();
  readonly providers: Record<string, (...words: never[]) => unknown>[] = [];
  readonly messages: string[] = [];
  readonly log: string[] = [];
  readonly status = { text: "", tooltip: "", show() {}, hide() {}, dispose() {} };
  found: Diagnostic[] = [];
  applied: TextEdit[] = [];
  private actions: CodeActionProvider | undefined;
  private readonly published = new EventEmitter();

  private readonly document: object;

  constructor(
    file: string,
    text: string,
    private readonly settings: Record<string, unknown>,
  ) {
    this.document = {
      uri: Uri.file(file),
      fileName: file,
      languageId: "python",
      version: 1,
      lineCount: text.split("\n").length,
      isClosed: false,
      getText: () => text,
      save: () => Promise.resolve(true),
    };
  }

  /** Make `require("vscode")` answer with this editor. */
  install(): void {
    const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
    const load = loader._load;
    const vscode = this.vscode();
    loader._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
  }

  /** Wait until the server publishes so many findings; it may publish the same ones again before. */
  findings(count: number): Promise<Diagnostic[]> {
    return new Promise((resolve) => {
      const heard = this.published.event(() => {
        if (this.found.length === count) {
          heard.dispose();
          resolve(this.found);
        }
      });
    });
  }

  /** Return the actions of a kind, the first ones with their edits, as VS Code's command does. */
  private async offered([, range, kind, resolved]: unknown[]): Promise<CodeAction[]> {
    const provider = this.actions!;
    const { token } = new CancellationTokenSource();
    const context = { diagnostics: this.found, only: new CodeActionKind(String(kind)) };
    const all = await provider.provideCodeActions(this.document, range, context, token);
    const first = all.slice(0, Number(resolved));
    return Promise.all(first.map((each) => provider.resolveCodeAction(each, token)));
  }

  private vscode(): object {
    const say = (message: string): Promise<undefined> => {
      this.messages.push(message);
      return Promise.resolve(undefined);
    };
    const channel = new Proxy(
      { name: "torchlint" },
      {
        get: (target, name) =>
          Reflect.get(target, name) ?? ((...said: unknown[]) => this.log.push(said.join(" "))),
      },
    );
    return partly({
      Disposable,
      EventEmitter,
      Position,
      Range,
      Uri,
      Diagnostic,
      CodeAction,
      CodeActionKind,
      TextEdit,
      WorkspaceEdit,
      CancellationTokenSource,
      TabInputText,
      version: "1.91.0",
      env: partly({ appName: "editor", language: "en" }),
      extensions: { getExtension: () => undefined, onDidChange: new EventEmitter().event },
      commands: partly({
        registerCommand: (name: string, run: (...words: unknown[]) => unknown) => {
          this.commands.set(name, run);
          return new Disposable();
        },
        executeCommand: (name: string, ...words: unknown[]) =>
          name === "vscode.executeCodeActionProvider" ? this.offered(words) : undefined,
      }),
      window: partly({
        activeTextEditor: { document: this.document, selection: { active: new Position(0, 0) } },
        visibleTextEditors: [],
        tabGroups: partly({
          all: [{ tabs: [{ input: new TabInputText((this.document as { uri: Uri }).uri) }] }],
          onDidChangeTabs: new EventEmitter().event,
        }),
        createOutputChannel: () => channel,
        createStatusBarItem: () => this.status,
        showWarningMessage: say,
        showErrorMessage: say,
        showInformationMessage: say,
      }),
      workspace: partly({
        workspaceFolders: undefined,
        createFileSystemWatcher: () => {
          const { event } = new EventEmitter();
          return { onDidCreate: event, onDidChange: event, onDidDelete: event, dispose() {} };
        },
        applyEdit: (edit: WorkspaceEdit) => {
          this.applied = edit.changes;
          return Promise.resolve(true);
        },
        textDocuments: [this.document],
        notebookDocuments: [],
        getConfiguration: (section?: string) => {
          const table = section === "torchlint" ? this.settings : { torchlint: this.settings };
          return {
            ...table,
            get: (key: string, other: unknown) => (table as Record<string, unknown>)[key] ?? other,
          };
        },
        registerTextDocumentContentProvider: (
          _scheme: string,
          provider: Record<string, (...words: never[]) => unknown>,
        ) => {
          this.providers.push(provider);
          return new Disposable();
        },
      }),
      languages: partly({
        match: () => 10,
        registerCodeActionsProvider: (_selector: unknown, provider: CodeActionProvider) => {
          this.actions = provider;
          return new Disposable();
        },
        getDiagnostics: () => this.found,
        createDiagnosticCollection: () => ({
          set: (_uri: Uri, found: Diagnostic[] = []) => {
            this.found = found;
            this.published.fire(found);
          },
          delete() {},
          clear() {},
          dispose() {},
        }),
      }),
    });
  }
}
