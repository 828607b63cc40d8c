// Reads a JSON list of SARIF logs on stdin; writes, for each, what violates the schema of the standard.
import { readFileSync } from "node:fs";
import Ajv from "ajv";

const schema = JSON.parse(readFileSync(new URL("node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json", import.meta.url)));
const ajv = new Ajv({ allErrors: true, schemaId: "auto", meta: false, unknownFormats: "ignore", logger: false });
const { default: meta } = await import("ajv/lib/refs/json-schema-draft-04.json", { with: { type: "json" } });
ajv.addMetaSchema(meta);
const validate = ajv.compile(schema);
const found = JSON.parse(readFileSync(0, "utf8")).map((log) => (validate(log) ? [] : validate.errors.map((e) => `${e.dataPath} ${e.message}`)));
process.stdout.write(JSON.stringify(found));
