// Packs the package, installs it as a program does, type-checks and runs every block of the README.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Cluster } from "./cluster.js";

const run = promisify(execFile);
const home = fileURLToPath(new URL("../..", import.meta.url));

/** Returns the blocks of the README in a language. */
async function blocks(language: string): Promise<string[]> {
  const text = await readFile(join(home, "README.md"), "utf8");
  const found = [...text.matchAll(/^```(\w*)\n(.*?)^```$/gms)];
  for (const [, kind] of found) assert.ok(["sh", "ts", "js"].includes(kind ?? ""), `a block in ${kind ?? "?"} is not run`);
  return found.filter(([, kind]) => kind === language).map(([, , code]) => code ?? "");
}

/** Makes a program that has the package installed, as the README says. */
async function program(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "isotone-readme-"));
  const packed = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", dir], { cwd: home });
  const [{ filename }] = JSON.parse(packed.stdout) as [{ filename: string }];
  const [install] = await blocks("sh");
  assert.equal(install, "npm install isotone\n");
  await writeFile(join(dir, "package.json"), '{ "type": "module" }');
  await run("npm", ["install", "--no-audit", "--no-fund", "--offline", join(dir, filename)], { cwd: dir });
  await mkdir(join(dir, "node_modules", "@types"));
  await symlink(join(home, "node_modules", "@types", "node"), join(dir, "node_modules", "@types", "node"));
  return dir;
}

void test("every block of the README runs", async () => {
  await using cluster = await Cluster.start();
  let answered = 0;
  cluster.reply = (r) => {
    if (r.args[0] !== "TS" || ++answered % 100 > 0) return undefined;
    cluster.leader = (cluster.leader + 1) % 3; // failover, again and again
    r.node.hangUp();
    return "";
  };
  const dir = await program();
  try {
    const [ts, js] = [await blocks("ts"), await blocks("js")];
    const at = (code: string): string =>
      code.replace(/[\w.-]+:8080/g, (addr) => cluster.addrs[Number(/\d(?=:)/.exec(addr)?.[0] ?? 1) - 1] ?? cluster.leading.addr);
    for (const [i, code] of ts.entries()) await writeFile(join(dir, `block${i}.ts`), at(code));
    for (const [i, code] of js.entries()) await writeFile(join(dir, `block${i}.cjs`), at(code));
    const files = ts.map((_, i) => `block${i}.ts`);
    await run(
      process.execPath,
      [
        join(home, "node_modules/typescript/bin/tsc"),
        "--strict",
        "--target",
        "es2022",
        "--module",
        "nodenext",
        "--types",
        "node",
        ...files,
      ],
      { cwd: dir },
    );
    for (const file of [...files.map((name) => name.replace(".ts", ".js")), ...js.map((_, i) => `block${i}.cjs`)]) {
      const { stdout } = await run(process.execPath, [file], { cwd: dir, timeout: 60_000, env: { ...process.env, SECRET: "open sesame" } });
      assert.notEqual(stdout, "", `${file} says nothing`);
      assert.doesNotMatch(stdout, /false/, file);
    }
    assert.ok(answered > 1000);
  } catch (error) {
    throw new Error((error as { stdout?: string }).stdout ?? "", { cause: error });
  } finally {
    await rm(dir, { recursive: true });
  }
});
