"""LangChain, LlamaIndex, LiteLLM, aider, Continue, Claude Code and Codex, unmodified, against a running server: docs/clients.md.

    python recipes_suite.py PATH-OF-THE-MILLRACE-BINARY PATH-OF-AIDER FOLDER-WITH-node_modules

They talk to the built-in model, whose context is short and whose words mean little: what is checked is that each gets an answer, and
its form.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Literal

# Before the libraries that look at it: prices and tokenizers are not fetched.
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}

import langchain.agents
import litellm
import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

from scripted_upstream import ScriptedUpstream
from suite import check, run

MODEL = "millrace-mini"
DIMENSIONS = 256
HELLO = [{"role": "user", "content": "Hello"}]
QUESTION = "What is the weather in Rome?"
City = Literal["Rome", "Oslo"]
AIDER, NODE = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: City
    days: Literal[1, 2, 3]


def weather(city: City) -> str:
    """The weather of a city."""
    return "sunny"


@check
def langchain_models(_, server):
    """LangChain: text, an object and a tool through three formats, embeddings through two"""
    there = {"model": MODEL, "temperature": 0}
    models = [
        ChatOpenAI(**there, base_url=f"{server.url}/v1", api_key="none", max_tokens=200),
        ChatAnthropic(**there, base_url=server.url, api_key="none", max_tokens=200),
        ChatOllama(**there, base_url=server.url, num_predict=200),
    ]
    for model in models:
        whole = model.invoke("Hello").content
        assert whole and "".join(part.content if isinstance(part.content, str) else part.text for part in model.stream("Hello")) == whole
        assert isinstance(model.with_structured_output(Place).invoke(QUESTION), Place), model
    calls = models[0].bind_tools([weather], tool_choice="any").invoke(QUESTION).tool_calls
    assert calls and calls[0]["name"] == "weather" and calls[0]["args"]["city"] in ("Rome", "Oslo"), calls
    agent = langchain.agents.create_agent(models[0], [weather])
    assert agent.invoke({"messages": HELLO}, {"recursion_limit": 12})["messages"][-1].content
    for embeddings in (
        # Without its check it sends texts, not tokens of OpenAI's vocabulary.
        OpenAIEmbeddings(model=MODEL, base_url=f"{server.url}/v1", api_key="none", check_embedding_ctx_length=False),
        OllamaEmbeddings(model=MODEL, base_url=server.url),
    ):
        assert [len(vector) for vector in embeddings.embed_documents(["one", "two"])] == [DIMENSIONS] * 2


@check
def llama_index(_, server):
    """LlamaIndex: text, an object, a tool, and a question over documents"""
    there = {"api_base": f"{server.url}/v1", "api_key": "none"}
    kind = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 2048, "max_tokens": 200}
    model = OpenAILike(model=MODEL, temperature=0, **kind, **there)
    ask = [ChatMessage(role="user", content="Hello")]
    whole = model.chat(ask).message.content
    assert whole and "".join(part.delta or "" for part in model.stream_chat(ask)) == whole
    Place.model_validate_json(model.as_structured_llm(Place).complete(QUESTION).text)
    tool = FunctionTool.from_defaults(weather)
    assert model.predict_and_call([tool], QUESTION, tool_required=True).response == "sunny"
    embeddings = OpenAILikeEmbedding(model_name=MODEL, **there)
    documents = [Document(text="The river is cold."), Document(text="The mill is old.")]
    index = VectorStoreIndex.from_documents(documents, embed_model=embeddings)
    assert index.as_query_engine(llm=model).query("How old is the mill?").response
    assert Ollama(model=MODEL, base_url=server.url, request_timeout=60, context_window=2048).complete("Hello").text


@check
def litellm_providers(_, server):
    """LiteLLM: five of its providers, a stream, a tool, a response, embeddings"""
    ours = {"api_base": f"{server.url}/v1", "api_key": "none"}
    for provider, there in [
        ("openai", ours),
        ("hosted_vllm", ours),
        ("anthropic", {"api_base": server.url, "api_key": "none"}),
        ("ollama_chat", {"api_base": server.url}),
        ("ollama", {"api_base": server.url}),
    ]:
        answer = litellm.completion(model=f"{provider}/{MODEL}", messages=HELLO, temperature=0, max_tokens=200, **there)
        assert answer.choices[0].message.content and answer.usage.completion_tokens > 0, provider
    ask = {"model": f"openai/{MODEL}", "messages": HELLO, "temperature": 0} | ours
    parts = litellm.completion(**ask, stream=True)
    whole = litellm.completion(**ask).choices[0].message.content
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole
    parameters = Place.model_json_schema()
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    called = litellm.completion(**ask, tools=tools, tool_choice="required").choices[0].message.tool_calls
    Place.model_validate_json(called[0].function.arguments)
    assert litellm.responses(model=f"openai/{MODEL}", input="Hello", **ours).output_text
    vectors = litellm.embedding(model=f"openai/{MODEL}", input=["one", "two"], **ours).data
    assert [len(vector["embedding"]) for vector in vectors] == [DIMENSIONS] * 2


def said(command, folder, variables, **options):
    """What a command prints, in a folder that is its home too."""
    home = {"HOME": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | home | variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@check
def aider(_, server):
    """aider: one question about a file"""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "one.py"
        file.write_text("x = 1\n")
        command = [AIDER, "--model", f"openai/{MODEL}", "--message", "Hello", "--edit-format", "ask", "--map-tokens", "0"]
        command += ["--no-git", "--yes", "--no-pretty", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", file]
        text = said(command, folder, {"OPENAI_API_BASE": f"{server.url}/v1", "OPENAI_API_KEY": "none"})
        assert "Tokens:" in text and "received" in text, text


@check
def claude_code(_, server):
    """Claude Code: one prompt without tools, whose result has its counts"""
    with tempfile.TemporaryDirectory() as folder:
        # Its package for this platform has the program: the script that links to it at installation is not run.
        [program] = NODE.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        command = [program, "-p", "Hello", "--output-format", "json", "--tools", "", "--system-prompt", "Be brief."]
        there = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_AUTH_TOKEN": "none"}
        there |= {"ANTHROPIC_MODEL": MODEL, "ANTHROPIC_SMALL_FAST_MODEL": MODEL}
        there |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "200"}
        result = json.loads(said(command, folder, there))
        assert not result["is_error"] and result["usage"]["output_tokens"] > 0, result


# A name that Codex knows: with it, edits are calls of its custom tool.
CODEX_MODEL = "gpt-5.5"
CODEX_TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' ~ tools|tojson ~ '\\nCall by <tool_call></tool_call>.<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\\n' ~ (m.content or '') }}{%- for c in m.tool_calls or [] %}"
    "{{- '<tool_call>' ~ c.function|tojson ~ '</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
PATCH = "*** Begin Patch\n*** Update File: one.py\n@@\n-x = 1\n+x = 2  # \"é\"\n*** End Patch\n"


def called(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@contextlib.contextmanager
def codex(server, *answers):
    """Codex with its defaults, in a folder with a file, before a server whose model gives these answers: what it prints, and the file."""
    [program] = NODE.glob("node_modules/@openai/codex-*/vendor/*/bin/codex")
    upstream = ScriptedUpstream(*answers)
    # It does not start with a home below /tmp.
    with tempfile.TemporaryDirectory(dir=NODE) as folder:
        folder = pathlib.Path(folder)
        model, template = folder / f"{CODEX_MODEL}.gguf", folder / "template.jinja"
        subprocess.run([server.binary, "synth", model, "--preset", "tiny-llama", "--train-context", "131072"], check=True, stdout=subprocess.DEVNULL)
        template.write_text(CODEX_TEMPLATE)
        serve = [server.binary, "serve", model, "--bind", "127.0.0.1:0", "--upstream", upstream.url, "--upstream-api", "openai_text"]
        process = subprocess.Popen([*serve, "--chat-template", template], stdout=subprocess.PIPE, text=True)
        try:
            found = (re.search(r" serves .*(http://127\.0\.0\.1:\d+)", line) for line in process.stdout)
            url = next(match.group(1) for match in found if match)
            work = folder / "work"
            work.mkdir()
            (work / "one.py").write_text("x = 1\n")
            provider = f'{{name="millrace", base_url="{url}/v1", wire_api="responses"}}'
            command = [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", CODEX_MODEL]
            command += ["-c", "model_provider=millrace", "-c", f"model_providers.millrace={provider}", "Set x to 2."]
            text = said(command, work, {"HOME": str(folder), "CODEX_HOME": str(folder)})
            yield text, (work / "one.py").read_text(), upstream.answered
        finally:
            process.terminate()
            process.wait(timeout=60)
            upstream.stop()


@check
def codex_starts(_, server):
    """Codex: one prompt with all its tools, some of which no server but OpenAI's runs"""
    with codex(server, "The wheel turns.") as (text, _, requests):
        assert "The wheel turns." in text and requests == 1, text


@check
def codex_edits(_, server):
    """Codex: an edit by its custom tool and one by its shell, whose results it sends back"""
    by_shell = called("exec_command", cmd="echo y = 3 >> one.py")
    with codex(server, called("apply_patch", input=PATCH), by_shell, "It is done.") as (text, file, requests):
        assert file == "x = 2  # \"é\"\ny = 3\n" and "It is done." in text and requests == 3, (file, text)


CONTINUE = """name: local
version: 1.0.0
schema: v1
models:
  - name: millrace
    provider: openai
    model: {model}
    apiBase: {url}/v1
    apiKey: none
    roles: [chat]
    defaultCompletionOptions:
      maxTokens: 200
"""


@check
def continue_cli(_, server):
    """Continue: one prompt without tools, from its command line"""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.yaml"
        config.write_text(CONTINUE.format(model=MODEL, url=server.url))
        command = [NODE / "node_modules/.bin/cn", "-p", "Hello", "--config", config, "--exclude", "*", "--silent"]
        assert said(command, folder, {"CONTINUE_TELEMETRY_ENABLED": "0"}).strip()


if __name__ == "__main__":
    run(lambda url: url)
