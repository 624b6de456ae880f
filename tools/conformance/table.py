"""docs/conformance.md: what other people's suites say of the server."""

HEAD = """# What other people's suites say

Written by `cargo xtask conformance`, which runs each suite as its authors published it, against a server with the built-in
model. The command fails if a test fails that is not named below, or if one passes that is (`tools/conformance/known.toml`).

| suite | version | passed | failed, for a reason below | skipped |
|---|---|---|---|---|
"""

FOOT = """
## How they are run

- **openai**, **anthropic**: `tests/api_resources` of the clients' source packages on PyPI. They were written against a mock server that answers
  anything. The models they name are made names of the built-in one (`/api/copy`, as any user could). The names of responses that OpenAI's make up are
  replaced on their way, by a proxy that changes nothing else, by that of a response made a moment before (`tools/conformance/stand_in.py`).
- **langchain**: the standard integration tests of `langchain-tests`, through ChatOpenAI (chat completions and responses), ChatAnthropic and ChatOllama.
- **llama.cpp**: the tests of its server that are about what both serve, from llama-cpp-python's source package, told that a server is there already.
- **ollama**: the packages hold no tests of a live server: these are checks of ours through the unmodified clients (`tools/clients`).
- **recipes**: the recipes of docs/clients.md whose clients are large (LangChain, LlamaIndex, LiteLLM, aider, Claude Code, Continue), in the versions that page names.
- **schemathesis**: requests made of `/openapi.json`, each answer beside its description; a test is an operation. Not asked: what fetches, makes and deletes models, and
  streams without an end.

The built-in model has three and a half million parameters. Where a test needs a model that understands what it is asked, the row says so, and either outcome is taken.
"""


def page(suites, results):
    rows = []
    for suite in suites:
        result = results[suite.name]
        rows.append(f"| {suite.name} | {f'{suite.package} {suite.version}'.strip()} | {len(result.passed)} | {len(result.failed)} | {len(result.skipped)} |")
    parts = [HEAD + "\n".join(rows) + "\n"]
    for suite in suites:
        if told := [row for row in results[suite.name].rows if row[1]]:
            parts.append(f"\n## What fails in {suite.name}, and why\n\n| tests | failed | why |\n|---|---|---|\n")
            parts += [f"| {names(row)} | {count(failed, of, row)} | {row['why']} |\n" for failed, of, row in told]
    return "".join(parts) + FOOT


def names(row):
    return ", ".join(f"`{pattern}`" for pattern in row["tests"]).replace("|", "\\|")


def count(failed, of, row):
    return f"{failed} of {of} (the model)" if row.get("model") else str(failed)
