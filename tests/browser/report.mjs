// Opens HTML reports in Chromium. Reads {"path": file, "do": [action, ...], ...} on stdin, one or a list; writes what was seen.
//   do: "key:NAME", "click:BUTTON", "link:TEXT", "hash:#..."; after each, what is shown
//   scheme: light | dark; width; script: false for a browser without JavaScript; print: true; axe: true
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

const state = (page) =>
  page.evaluate(() => ({
    shown: [...document.querySelectorAll("article")].filter((a) => a.checkVisibility()).map((a) => a.id),
    hash: location.hash,
    status: document.getElementById("status").textContent,
    current: [...document.querySelectorAll("[aria-current]")].map((a) => a.hash),
    off: [...document.querySelectorAll('button[aria-disabled="true"]')].map((b) => b.textContent.replace(/[^A-Za-z]/g, "")),
    controls: document.getElementById("controls").checkVisibility(),
    focus: document.activeElement.tagName,
    inView: [...document.querySelectorAll("article h3")].some((h) => {
      const box = h.getBoundingClientRect();
      const nav = document.querySelector("#stepper nav").getBoundingClientRect();
      return h.checkVisibility() && box.top >= nav.bottom - 1 && box.top < innerHeight;
    }),
  }));

const act = async (page, action) => {
  const [kind, ...rest] = action.split(":");
  const what = rest.join(":");
  if (kind === "key") await page.keyboard.press(what);
  else if (kind === "click") await page.getByRole("button", { name: what }).click({ force: true });
  else if (kind === "link") await page.getByRole("link", { name: what, exact: true }).first().click();
  else if (kind === "hash") await page.evaluate((hash) => (location.hash = hash), what);
  else if (kind === "back") await page.goBack();
  await page.waitForTimeout(60);
};

const seen = async (asked) => {
  const context = await browser.newContext({
    viewport: { width: asked.width ?? 1280, height: asked.height ?? 900 },
    colorScheme: asked.scheme ?? "light",
    reducedMotion: "reduce",
    javaScriptEnabled: asked.script ?? true,
    bypassCSP: asked.axe ?? false, // the checker is a script of its own
  });
  const page = await context.newPage();
  const found = { console: [], requests: [], dialogs: 0, after: [] };
  page.on("console", (message) => found.console.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => found.console.push(`error: ${error.message}`));
  page.on("dialog", async (dialog) => {
    found.dialogs += 1;
    await dialog.dismiss();
  });
  const url = pathToFileURL(asked.path).href;
  context.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("data:")) found.requests.push(request.url());
  });
  await page.goto(url + (asked.hash ?? ""));
  await page.waitForTimeout(asked.wait ?? 100);
  if (asked.print) await page.emulateMedia({ media: "print" });
  found.state = await state(page);
  for (const action of asked.do ?? []) {
    await act(page, action);
    found.after.push(await state(page));
  }
  found.width = await page.evaluate(() => document.documentElement.scrollWidth);
  found.paper = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  found.texts = await page.evaluate(() => document.body.innerText.length);
  if (asked.axe) {
    await page.evaluate(axe);
    const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations", "incomplete"] }));
    const told = (entry) => ({ id: entry.id, impact: entry.impact, nodes: entry.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)) });
    found.violations = result.violations.map(told);
    found.incomplete = result.incomplete.map(told);
    found.passes = result.passes.length;
  }
  if (asked.pdf) await page.pdf({ path: asked.pdf, format: "A4" });
  await context.close();
  return found;
};

try {
  const answers = [];
  for (const asked of JSON.parse(readFileSync(0, "utf8"))) answers.push(await seen(asked));
  process.stdout.write(JSON.stringify(answers));
} finally {
  await browser.close();
}
