"""instructor and openai-agents, unmodified, against a running server.

    python agents_suite.py PATH-OF-THE-MILLRACE-BINARY

They talk to the built-in model. Its words mean little: what is checked is form, and that calls of tools go round.
"""

import asyncio
import os
from typing import Literal

# Before the libraries that look at it: nothing is sent anywhere else.
os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "NO_PROXY": "127.0.0.1"}

import agents
import instructor
import openai
import pydantic

from suite import check, run

MODEL = "millrace-mini"
QUESTION = "What is the weather in Rome?"
# Whatever the model would say, an answer of this form is short.
City = Literal["Rome", "Oslo"]


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: City
    days: Literal[1, 2, 3]


def client(server, kind):
    return kind(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


@check
def instructor_objects(_, server):
    """instructor: an object by a tool, and by a schema"""
    ask = {"model": MODEL, "response_model": Place, "messages": [{"role": "user", "content": QUESTION}]}
    ask |= {"max_tokens": 200, "max_retries": 0, "temperature": 0}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        place = instructor.from_openai(client(server, openai.OpenAI), mode=mode).chat.completions.create(**ask)
        assert isinstance(place, Place), (mode, place)


@check
def openai_agents(_, server):
    """openai-agents: a tool that must be called, and the turn after it, over chat completions and responses"""
    asyncio.run(agent_runs(server))


async def agent_runs(server):
    ours = client(server, openai.AsyncOpenAI)
    told = []

    @agents.function_tool
    def weather(city: City) -> str:
        """The weather of a city."""
        told.append(city)
        return "sunny"

    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        agent = agents.Agent(
            name="weather",
            instructions="Be brief.",
            model=kind(model=MODEL, openai_client=ours),
            model_settings=agents.ModelSettings(temperature=0, max_tokens=200, tool_choice="required"),
            tools=[weather],
        )
        told.clear()
        whole = await agents.Runner.run(agent, QUESTION)
        calls = len(told)
        assert calls > 0 and isinstance(whole.final_output, str), kind
        run = agents.Runner.run_streamed(agent, QUESTION)
        kinds = {event.type async for event in run.stream_events()}
        assert {"raw_response_event", "run_item_stream_event"} <= kinds, (kind, kinds)
        assert len(told) > calls and isinstance(run.final_output, str), kind


if __name__ == "__main__":
    run(lambda url: url)
