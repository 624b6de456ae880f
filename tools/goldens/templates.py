#!/usr/bin/env python3
"""Renders chat templates with Python's jinja2, for the tests of crates/text to compare with.

    tools/goldens/templates.py CONVERSATIONS.json OUT.json TEMPLATE.jinja...
    tools/goldens/templates.py --snippets SNIPPETS.json OUT.json

The environment is the one the `transformers` library documents for chat templates: an immutable
sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, and the helpers tojson,
raise_exception and strftime_now (here of the conversation's own time, in UTC).

OUT holds, by template and conversation, what came out: {"text": ...}, {"refused": the message of
raise_exception}, {"broken": the exception's class}, or {"lenient": ...}: what comes out when `tools`
is an empty list, where it fails because `tools` is None. Snippets are templates of one line,
rendered over an empty conversation. Needs jinja2 (3.1).
"""

import datetime
import json
import sys
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

BOS, EOS = "<s>", "</s>"


class Refused(jinja2.exceptions.TemplateError):
    """What raise_exception raises: told apart from the template's own faults."""


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks the assistant's text, and prints it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(now_unix_s):
    def raise_exception(message):
        raise Refused(message)

    def strftime_now(format):
        now = datetime.datetime.fromtimestamp(now_unix_s, datetime.timezone.utc)
        return now.strftime(format)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(source, conversation):
    variables = {
        "bos_token": BOS,
        "eos_token": EOS,
        "documents": None,
        **conversation.get("kwargs", {}),
        "messages": conversation["messages"],
        "tools": conversation.get("tools"),
        "add_generation_prompt": conversation.get("add_generation_prompt", True),
    }
    try:
        template = environment(conversation["now_unix_s"]).from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        return {"broken": type(error).__name__}
    try:
        return {"text": template.render(**variables)}
    except Refused as refusal:
        return {"refused": str(refusal)}
    except Exception as error:
        return without_tools(template, variables) or {"broken": type(error).__name__}


def without_tools(template, variables):
    if variables["tools"] is None:
        try:
            return {"lenient": template.render(**{**variables, "tools": []})}
        except Exception:
            return None


def main(conversations, out, *templates):
    conversations = json.loads(Path(conversations).read_text())
    goldens = {
        Path(path).name: {c["name"]: render(Path(path).read_text(), c) for c in conversations}
        for path in sorted(templates, key=lambda path: Path(path).name)
    }
    write(goldens, out)


def main_snippets(snippets, out):
    nothing = {"messages": [], "now_unix_s": 1753600000}
    snippets = json.loads(Path(snippets).read_text())
    write({snippet: render(snippet, nothing) for snippet in snippets}, out)


def write(goldens, out):
    Path(out).write_text(json.dumps(goldens, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--snippets":
        main_snippets(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
