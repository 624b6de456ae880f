"""LangChain's standard integration tests through its three clients. What they ask is all theirs; here is only where to.

Run by `cargo xtask conformance`, which sets `TEST_API_BASE_URL`.
"""

import os

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL = os.environ["TEST_API_BASE_URL"]
MODEL = "millrace-mini"
# The built-in model may go on for long where it knows nothing: what is tested is the form of an answer.
ASKED = {"model": MODEL, "temperature": 0}
TOKENS_MAX = 200


class Ours(ChatModelIntegrationTests):
    standard_chat_model_params = {}
    supports_model_override = True
    model_override_value = "other"


class TestChatOpenAI(Ours):
    chat_model_class = ChatOpenAI
    # Given a base URL the client asks for no usage in a stream unless it is told to.
    chat_model_params = ASKED | {"base_url": f"{URL}/v1", "api_key": "none", "max_tokens": TOKENS_MAX, "stream_usage": True}
    supports_json_mode = True


class TestChatOpenAIResponses(Ours):
    chat_model_class = ChatOpenAI
    chat_model_params = TestChatOpenAI.chat_model_params | {"use_responses_api": True}
    supports_json_mode = True


class TestChatAnthropic(Ours):
    chat_model_class = ChatAnthropic
    chat_model_params = ASKED | {"base_url": URL, "api_key": "none", "max_tokens": TOKENS_MAX}


class TestChatOllama(Ours):
    chat_model_class = ChatOllama
    chat_model_params = ASKED | {"base_url": URL, "num_predict": TOKENS_MAX}
    supports_json_mode = True
