"""LangChain, LlamaIndex, LiteLLM, aider, Continue and Claude Code, unmodified, against a running server: docs/clients.md.

    python recipes_suite.py PATH-OF-THE-MILLRACE-BINARY PATH-OF-AIDER FOLDER-WITH-node_modules

They talk to the built-in model, whose context is short and whose words mean little: what is checked is that each gets an answer, and
its form.
"""

import json
import os
import pathlib
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
