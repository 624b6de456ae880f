"""pydantic-ai and `llm`, unmodified, against a running server.

    python pydantic_ai_suite.py PATH-OF-THE-MILLRACE-BINARY

They talk to the built-in model. Its words mean little: what is checked is form.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Literal

import pydantic
import pydantic_ai
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from suite import check, run

MODEL = "millrace-mini"
QUESTION = "What is the weather in Rome?"
# Whatever the model would say, an answer of this form is short.
City = Literal["Rome", "Oslo"]


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: City
    days: Literal[1, 2, 3]


def weather(city: City) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@check
def pydantic_ai_agents(_, server):
    """pydantic-ai: text, an object, and a tool, over chat completions, responses and messages"""
    provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="none")
    models = [
        OpenAIChatModel(MODEL, provider=provider),
        OpenAIResponsesModel(MODEL, provider=provider),
        AnthropicModel(MODEL, provider=AnthropicProvider(base_url=server.url, api_key="none")),
    ]
    for model in models:
        settings = {"temperature": 0, "max_tokens": 200}
        text = pydantic_ai.Agent(model, model_settings=settings).run_sync("Hello")
        assert text.output and text.usage.output_tokens > 0, model
        for output in (Place, pydantic_ai.NativeOutput(Place)):
            if not (isinstance(model, AnthropicModel) and output is not Place):
                place = pydantic_ai.Agent(model, output_type=output, model_settings=settings).run_sync(QUESTION)
                assert isinstance(place.output, Place), (model, place)
        agent = pydantic_ai.Agent(model, tools=[weather], model_settings=settings)
        assert isinstance(agent.run_sync(QUESTION).output, str), model


@check
def llm_command(_, server):
    """llm: a prompt, streamed and whole, and a schema, from the command line"""
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder) / "extra-openai-models.yaml"
        models.write_text(
            f'- model_id: mill\n  model_name: {MODEL}\n  api_base: "{server.url}/v1"\n  supports_schema: true\n'
        )
        command = [pathlib.Path(sys.executable).with_name("llm"), "-m", "mill", "-o", "temperature", "0"]
        variables = os.environ | {"LLM_USER_PATH": folder}

        def said(*words):
            done = subprocess.run([*command, *words], env=variables, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert said("Hello") == said("--no-stream", "Hello") != ""
        schema = Place.model_json_schema()
        place = said("--schema", pydantic.TypeAdapter(dict).dump_json(schema).decode(), QUESTION)
        Place.model_validate_json(place)


if __name__ == "__main__":
    run(lambda url: url)
