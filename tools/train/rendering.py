"""Conversations as the chat template (template.jinja) writes them, in parts that are learnt or not."""

END = "<|im_end|>"


def tool_line(tool):
    """As the template shows a tool."""
    function = tool["function"]
    params = ", ".join(f'"{name}": {about["type"]}' for name, about in function["parameters"]["properties"].items())
    return f"{function['name']} {{{params}}} {function['description']}"


def head(conversation):
    """The system turn, or nothing."""
    if conversation.system is None and not conversation.tools:
        return ""
    text = conversation.system or ""
    if conversation.tools:
        text += ("\n" if conversation.system is not None else "") + "<tools>\n"
        text += "\n".join(map(tool_line, conversation.tools)) + "\n</tools>"
    return f"<|im_start|>system\n{text}{END}\n"


def parts(conversation, upto=None):
    """Training texts: lists of (text, learnt). One conversation that thinks gives several: thoughts of
    earlier turns are not shown again, so each turn is a text of its own."""
    before, made = head(conversation), []
    texts = [(before, False)] if before else []
    for i, turn in enumerate(conversation.turns):
        if turn.user is not None:
            texts.append((f"<|im_start|>user\n{turn.user}{END}\n", False))
        else:
            result = conversation.turns[i - 1].result
            texts.append((f"<|im_start|>tool\n{result}{END}\n", False))
        texts.append(("<|im_start|>assistant\n", False))
        if conversation.thinking:
            thought = [("<think>\n", False), (f"{turn.think}\n</think>\n\n{turn.answer}{END}", True)]
            made.append(texts + thought)
        texts.append((turn.answer + END, True))
        texts.append(("\n", False))
    if not conversation.thinking:
        return [texts]
    # Turns before the last are context here: they are learnt where they are the last.
    return [[(text, learnt and at >= len(one) - 2) for at, (text, learnt) in enumerate(one)] for one in made[-2:]]


def messages(conversation, turn):
    """OpenAI's messages up to the question of turn `turn`."""
    found = [] if conversation.system is None else [{"role": "system", "content": conversation.system}]
    for i, said in enumerate(conversation.turns[: turn + 1]):
        if said.user is not None:
            found.append({"role": "user", "content": said.user})
        else:
            found.append({"role": "tool", "tool_call_id": "call_0", "content": conversation.turns[i - 1].result})
        if i == turn:
            return found
        call = getattr(said, "call", None)
        if call is None:
            found.append({"role": "assistant", "content": said.answer})
        else:
            import json

            function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
            called = [{"id": "call_0", "type": "function", "function": function}]
            found.append({"role": "assistant", "content": "", "tool_calls": called})
    return found
