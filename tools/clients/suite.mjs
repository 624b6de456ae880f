// What every suite of checks for Node has: the server under test, and the run of a list of checks.

import { execFileSync, spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { pathToFileURL } from "node:url"

const [binary, packages] = process.argv.slice(2)
const required = createRequire(resolve(packages, "package.json"))

/// The small synthetic model, which is served beside the built-in one.
export const TINY = "tiny"
export const BUILT_IN = "millrace-mini"

/// A package of the folder given.
export const load = (name) => import(pathToFileURL(required.resolve(name)))

async function serve(folder) {
  const file = join(folder, `${TINY}.gguf`)
  const synth = ["synth", file, "--preset", "tiny-llama", "--quant", "Q8_0", "--train-context", "2048"]
  execFileSync(binary, synth, { stdio: "ignore" })
  return start([file, "--bind", "127.0.0.1:0"], { XDG_CACHE_HOME: folder, XDG_DATA_HOME: folder })
}

/// Starts a server with these arguments and variables; gives the process and the address when it takes requests.
export async function start(args, variables) {
  const stdio = ["ignore", "pipe", "inherit"]
  const env = { ...process.env, ...variables }
  const server = spawn(binary, ["serve", ...args, "--deterministic"], { stdio, env })
  for await (const line of createInterface({ input: server.stdout })) {
    const found = / serves .*(http:\/\/127\.0\.0\.1:\d+)/.exec(line)
    if (!found) continue
    server.stdout.resume()
    return { server, url: found[1] }
  }
  throw new Error("the server stopped before it listened")
}

/// Runs each check with what `connect` makes of the server's address. Ends the process.
export async function run(connect, checks) {
  const folder = mkdtempSync(join(tmpdir(), "millrace-"))
  const { server, url } = await serve(folder)
  const connected = { url, ...(await connect(url)) }
  let failed = 0
  for (const [label, check] of Object.entries(checks)) {
    try {
      await check(connected)
      console.log(`ok    ${label}`)
    } catch (error) {
      failed += 1
      console.log(`FAIL  ${label}`)
      console.error(error)
    }
  }
  const stopped = new Promise((told) => server.on("exit", told))
  server.kill("SIGTERM")
  if ((await stopped) !== 0) {
    failed += 1
    console.log("FAIL  the server did not stop cleanly")
  }
  rmSync(folder, { recursive: true })
  console.log(`${Object.keys(checks).length + 1 - failed} passed, ${failed} failed`)
  process.exit(failed ? 1 : 0)
}
