/** The settings that the server gets. */

/** The section of the settings that the server asks for. */
export const SECTION = "torchlint";

/** Return the table for the server: the keys of a configuration file, none of the editor's own. */
export function serverSettings(section: unknown): Record<string, unknown> {
  const table = (section as { settings?: unknown } | null | undefined)?.settings;
  return typeof table === "object" && table !== null && !Array.isArray(table)
    ? { ...(table as Record<string, unknown>) }
    : {};
}
