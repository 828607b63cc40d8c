// Reads a JSON list of Mermaid texts on stdin; writes, for each, what Mermaid's own parser made of it, or its error.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });

// Mermaid keeps its `#59;` in a form of its own until it draws.
const plain = (text) => text.replace(/ﬂ°°(\d+)¶ß/g, (_, code) => String.fromCodePoint(Number(code)));

const found = [];
for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    const diagram = await mermaid.mermaidAPI.getDiagramFromText(text);
    const actors = [...diagram.db.getActors().values()].map((actor) => plain(actor.description));
    const messages = diagram.db.getMessages().map((message) => plain(message.message ?? ""));
    found.push({ type: diagram.type, actors, messages });
  } catch (error) {
    found.push({ error: String(error) });
  }
}
process.stdout.write(JSON.stringify(found));
