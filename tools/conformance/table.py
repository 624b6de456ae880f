"""docs/conformance.md: results of other projects' test suites."""

HEAD = """# Test suites of other projects
<a id="what-other-peoples-suites-say"></a>

Written by `cargo xtask conformance`, which runs each suite as its authors published it, against a server with the built-in model.
The command fails if a test fails that is not listed below, or if a listed one passes (`tools/conformance/known.toml`).
Schemas with instances, and Autobahn's cases for WebSockets, have pages of their own: `measurements/jsonschemabench.md`, `measurements/autobahn.md`.

| suite | version | passed | failed, for a reason below | skipped |
|---|---|---|---|---|
"""

FOOT = """
## How the suites are run
<a id="how-they-are-run"></a>

- **openai**, **anthropic**: `tests/api_resources` of the clients' source packages on PyPI. The models that they name are copies of the built-in one (`/api/copy`).
  OpenAI's made-up ids of responses and chat completions are replaced by real ones by a proxy (`tools/conformance/stand_in.py`).
- **langchain**: the standard integration tests of `langchain-tests`, through ChatOpenAI (chat completions and responses), ChatAnthropic and ChatOllama.
- **llama.cpp**: those tests of its server that concern features of both, from llama-cpp-python's source package, pointed at a running server.
- **open-responses**: checks of this project against the types of the specification (`openresponses-types`, made of its schema of 2026-04-24).
  The question about an image is for a model of the repository that sees (`crates/millrace/mini`), since the built-in one reads text only.
- **http-lint**: responses to requests of this project, valid and invalid, under `httplint`, the linter of HTTP messages of REDbot; notes of its levels `bad` and `warning`.
- **http-requests**: requests of this project as bytes, against RFC 9110 and RFC 9112: request smuggling, sizes of chunks, absurd heads.
- **websocket-frames**: WebSockets of this project as bytes, against RFC 6455: frames, fragments, UTF-8, close codes, opening handshakes.
- **durable-streams**: checks of this project through the unmodified client of the protocol (`tools/clients`).
  The protocol's own suite begins almost every test with a write; streams here are read only.
- **ollama**: the packages have no tests of a live server: these are checks of this project through the unmodified clients (`tools/clients`).
- **recipes**: the recipes of docs/clients.md whose clients are large (LangChain, LlamaIndex, LiteLLM, aider, Claude Code, Codex, Continue), in the versions that page names.
- **schemathesis**: valid and invalid requests generated from `/openapi.json`; a test is an operation.
  Status, content type, header fields, JSON and events of each response are validated against the document.
  Excluded: operations that download, create and delete models, and streams without an end.

The built-in model has three and a half million parameters. Where a test needs a model that understands its prompt, the row says so, and either outcome is accepted.
"""


def page(suites, results):
    rows = []
    for suite in suites:
        result = results[suite.name]
        rows.append(f"| {suite.name} | {f'{suite.package} {suite.version}'.strip()} | {len(result.passed)} | {len(result.failed)} | {len(result.skipped)} |")
    parts = [HEAD + "\n".join(rows) + "\n"]
    for suite in suites:
        if told := [row for row in results[suite.name].rows if row[1]]:
            parts.append(f"\n## Failures of {suite.name}\n\n| tests | failed | reason |\n|---|---|---|\n")
            parts += [f"| {names(row)} | {count(failed, of, row)} | {row['why']} |\n" for failed, of, row in told]
    return "".join(parts) + FOOT


def names(row):
    return ", ".join(f"`{pattern}`" for pattern in row["tests"]).replace("|", "\\|")


def count(failed, of, row):
    return f"{failed} of {of} (the model)" if row.get("model") else str(failed)
