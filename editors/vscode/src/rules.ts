/** The findings of torchlint among an editor's diagnostics. */

/** The part of a diagnostic that tells a rule; VS Code's and the protocol's both have it. */
export interface Coded {
  readonly source?: string | undefined;
  readonly code?:
    | string
    | number
    | { readonly value: string | number; readonly target?: unknown }
    | undefined;
}

/** Return the code of the rule behind a diagnostic of torchlint. */
export function ruleOf(diagnostic: Coded): string | undefined {
  if (diagnostic.source !== "torchlint" || diagnostic.code === undefined) {
    return undefined;
  }
  const { code } = diagnostic;
  return String(typeof code === "object" ? code.value : code);
}

/** Return the codes of the rules behind diagnostics, each once, in their order. */
export function rulesOf(diagnostics: readonly Coded[]): string[] {
  const codes = diagnostics.map(ruleOf).filter((code) => code !== undefined);
  return [...new Set(codes)];
}

/** Return what the status bar says. */
export function statusText(version: string | undefined, findings: number): string {
  if (version === undefined) {
    return "$(warning) torchlint";
  }
  return findings === 0 ? "$(zap) torchlint" : `$(zap) torchlint: ${findings}`;
}
