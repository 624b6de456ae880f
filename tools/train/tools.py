"""Tools: definitions, questions that need them, calls, results, and answers from results."""

import json

import words
from skills import Turn

# kind of value, names a parameter of it may have
STRING_NAMES = "text query name title message topic item value label subject content note input keyword phrase".split()
NUMBER_NAMES = "count amount number size limit value total level quantity index".split()
TYPES = ("string", "integer")

# Each family: tool names; parameters as (names, kind); descriptions; questions; results as (json, answer).
# {0}, {1} are the arguments.
FAMILIES = (
    (("get_weather", "weather", "current_weather", "fetch_weather", "weather_in_city", "lookup_weather"),
     ((("city", "location", "place", "town"), "name"),),
     ("Get the weather in a city", "Current weather of a place", "Tells the weather"),
     ("What is the weather in {0}?", "What's the weather like in {0}?", "How is the weather in {0}?", "Is it raining in {0}?",
      "Tell me the weather in {0}.", "How warm is it in {0}?", "weather in {0}", "What is the weather like in {0} today?"),
     (({"temperature": "#", "sky": "sky"}, "It is {temperature} degrees and {sky} in {0}."),
      ({"temperature_c": "#"}, "It is {temperature_c} degrees in {0}."))),
    (("get_time", "time_in", "current_time", "clock", "local_time"), ((("city", "place", "location", "zone"), "name"),),
     ("Get the time in a city", "Current time of a place", "Tells what time it is somewhere"),
     ("What time is it in {0}?", "Tell me the time in {0}.", "What is the time in {0}?", "time in {0}"),
     (({"time": "time"}, "It is {time} in {0}."),)),
    (("send_message", "message", "send_text", "post_message", "send_note"),
     ((("to", "recipient", "person", "name"), "name"), (("text", "message", "content", "body"), "phrase")),
     ("Send a message to a person", "Sends a text to someone"),
     ("Send {0} the message: {1}", "Send a message to {0}: {1}", "Tell {0} this: {1}", 'Send "{1}" to {0}.', "Message {0}: {1}",
      'Send a message to {0} that says "{1}".'),
     (({"status": "!sent"}, "I sent the message to {0}."), ({"ok": "!true"}, "I sent the message to {0}."))),
    (("send_email", "email", "mail", "write_email"),
     ((("to", "address", "recipient"), "email"), (("subject", "title", "topic"), "phrase")),
     ("Send an email", "Writes an email to an address"),
     ("Send an email to {0} with the subject {1}.", 'Email {0} about "{1}".', "Write an email to {0} with the subject: {1}",
      "Mail {0} with the subject {1}."),
     (({"status": "!sent"}, "I sent the email to {0}."),)),
    (("set_timer", "timer", "start_timer", "countdown"), ((("minutes", "time", "duration"), "int"),),
     ("Start a timer", "Set a timer of some minutes"),
     ("Set a timer for {0} minutes.", "Start a timer of {0} minutes.", "Timer for {0} minutes, please.", "Wake me in {0} minutes."),
     (({"status": "!started"}, "The timer is set for {0} minutes."),)),
    (("search", "web_search", "find", "lookup", "search_web", "find_pages"), ((("query", "text", "q", "keywords"), "phrase"),),
     ("Search the web", "Find pages about something", "Looks something up"),
     ("Search for {0}.", "Search the web for {0}.", "Look up {0}.", "Find pages about {0}.", 'Search for "{0}".', "Look for {0} on the web."),
     (({"results": "#"}, "I found {results} pages about {0}."), ({"title": "phrase"}, "I found this: {title}."))),
    (("add", "sum", "add_numbers", "plus", "calculate_sum"), ((("a", "x", "first"), "int"), (("b", "y", "second"), "int")),
     ("Add two numbers", "Gives the sum of two numbers"),
     ("Add {0} and {1} with the tool.", "Use the tool to add {0} and {1}.", "What is the sum of {0} and {1}? Use the tool."),
     (({"result": "#"}, "The result is {result}."),)),
    (("multiply", "times", "product", "multiply_numbers"), ((("a", "x", "first"), "int"), (("b", "y", "second"), "int")),
     ("Multiply two numbers", "Gives the product of two numbers"),
     ("Multiply {0} by {1}.", "What is {0} times {1}?", "How much is {0} times {1}?", "What is {0} * {1}?"),
     (({"result": "#"}, "The result is {result}."),)),
    (("get_price", "price", "price_of", "lookup_price"), ((("item", "product", "name"), "word"),),
     ("Get the price of a product", "Tells what something costs"),
     ("How much does a {0} cost?", "What is the price of a {0}?", "What does a {0} cost?", "Tell me the price of a {0}."),
     (({"price": "#", "currency": "!euros"}, "A {0} costs {price} euros."), ({"price": "#"}, "A {0} costs {price}."))),
    (("order_item", "order", "buy", "add_to_cart"), ((("item", "product", "name"), "word"), (("quantity", "count", "amount"), "int")),
     ("Order a product", "Buys some of a product"),
     ("Order {1} {0}s.", "Buy {1} {0}s.", "I want to order {1} {0}s.", "Put {1} {0}s into my cart."),
     (({"order": "#"}, "I ordered it. The order's number is {order}."),)),
    (("get_user", "find_user", "user_info", "lookup_user"), ((("id", "user_id", "user"), "int"),),
     ("Get a user by id", "Looks up a user"),
     ("Who is user {0}?", "Look up user {0}.", "Show me user {0}.", "Find the user with the id {0}."),
     (({"name": "name"}, "User {0} is {name}."),)),
    (("read_file", "open_file", "cat_file", "load_file"), ((("path", "file", "filename"), "file"),),
     ("Read a file", "Gives what is in a file"),
     ("Read the file {0}.", "What is in {0}?", "Open {0}.", "Show me the file {0}."),
     (({"text": "phrase"}, "The file says: {text}."),)),
    (("play_music", "play", "play_song", "music"), ((("title", "song", "name"), "phrase"),),
     ("Play a song", "Plays music"),
     ("Play {0}.", "Play the song {0}.", 'Play "{0}".', "I want to hear {0}."),
     (({"status": "!playing"}, "I am playing {0}."),)),
    (("turn_on", "switch_on", "lights", "device_on"), ((("device", "name", "room"), "word"),),
     ("Turn on a device", "Switches something on"),
     ("Turn on the {0}.", "Switch on the {0}.", "Please turn the {0} on."),
     (({"status": "!on"}, "The {0} is on."),)),
    (("create_event", "add_event", "calendar", "schedule"), ((("title", "name", "event"), "phrase"), (("day", "date", "when"), "day")),
     ("Put an event into the calendar", "Makes an appointment"),
     ("Put {0} into my calendar on {1}.", 'Schedule "{0}" for {1}.', "Add the event {0} on {1}.", "Make an appointment on {1}: {0}"),
     (({"status": "!created"}, "I put {0} into your calendar on {1}."),)),
    (("translate", "translate_text", "translator"), ((("text", "phrase", "sentence"), "phrase"), (("language", "to", "target"), "language")),
     ("Translate a text", "Translates into another language"),
     ("Translate {0} into {1}.", 'Translate "{0}" to {1}.', "How do you say {0} in {1}?"),
     (({"translation": "phrase"}, "In {1} it is: {translation}."),)),
)
SKY = "sunny cloudy rainy windy clear foggy snowy stormy".split()
LANGUAGES = "French German Spanish Italian Dutch Polish Greek Latin Danish Finnish".split()
# The places where no family would make a call: asked beside unrelated tools.
VERBS = "get make run start check open close move save load update remove create show list print convert find measure paint".split()


def drawn(rng, held, kind):
    """A value of a kind; numbers are numbers."""
    if kind == "int":
        return words.number(rng, held, 9999)
    if kind == "name":
        name = words.name(rng, held)
        return name + (" " + words.name(rng, held) if rng.random() < 0.15 else "")
    if kind == "word":
        return words.word(rng, held)
    if kind == "phrase":
        return words.phrase(rng, held)
    if kind == "email":
        return f"{words.word(rng, held)}@{words.word(rng, False)}.{rng.choice(('com', 'org', 'net', 'de'))}"
    if kind == "file":
        return f"{rng.choice(('', 'docs/', 'src/', '/tmp/'))}{words.word(rng, held)}.{rng.choice(('txt', 'md', 'json', 'py', 'rs'))}"
    if kind == "day":
        return rng.choice(words.DAYS)
    if kind == "language":
        return rng.choice(LANGUAGES)
    if kind == "sky":
        return rng.choice(SKY)
    if kind == "time":
        return f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
    raise ValueError(kind)


def definition(name, params, description):
    """In OpenAI's shape; `params` are (name, type)."""
    properties = {param: {"type": kind} for param, kind in params}
    return {
        "type": "function",
        "function": {
            "name": name, "description": description,
            "parameters": {"type": "object", "properties": properties, "required": [param for param, _ in params]},
        },
    }


def of_family(rng, family):
    """A family's tool with names chosen: (definition, parameter names)."""
    names, params, descriptions, _, _ = family
    name, chosen = rng.choice(names), []
    if rng.random() < 0.15:
        name = f"{words.made_up(rng)}_{name}"
    for options, kind in params:
        free = [option for option in options if option not in chosen]
        chosen.append(rng.choice(free) if rng.random() < 0.9 else words.made_up(rng) + str(len(chosen)))
    typed = [(param, "integer" if kind == "int" else "string") for param, (_, kind) in zip(chosen, params)]
    return definition(name, typed, rng.choice(descriptions)), chosen


def arbitrary(rng, held):
    """A tool nobody has seen, named in the question with its arguments."""
    noun = words.word(rng, held)
    name = rng.choice((f"{rng.choice(VERBS)}_{noun}", f"{noun}_{rng.choice(VERBS)}", noun, f"{words.word(rng, held)}_{noun}"))
    params, said, values = [], [], {}
    for i in range(rng.choice((1, 1, 2, 2, 3))):
        if rng.random() < 0.6:
            param, kind, value = rng.choice((rng.choice(STRING_NAMES), words.word(rng, held))), "string", words.phrase(rng, held, 3)
            shown = rng.choice((value, f'"{value}"'))
        else:
            param, kind, value = rng.choice((rng.choice(NUMBER_NAMES), words.word(rng, held))), "integer", words.number(rng, held, 9999)
            shown = str(value)
        if param in values:
            param = f"{param}_{i}"
        params.append((param, kind))
        values[param] = value
        said.append(f"{param} {shown}")
    joined = rng.choice((" and ", ", ")).join(said)
    ask = rng.choice(("Call {n} with {j}.", "Use {n} with {j}.", "Run {n} with {j}.", "Use the tool {n} with {j}.", "Please call {n} with {j}."))
    description = rng.choice(VERBS).capitalize() + f" a {noun}"
    return definition(name, params, description), ask.format(n=name, j=joined), values


def call_turn(user, name, arguments, think, result=None):
    """A turn that is a call."""
    call = {"name": name, "arguments": arguments}
    text = "<tool_call>\n" + json.dumps(call, ensure_ascii=False) + "\n</tool_call>"
    made = Turn(user, text, think, "tool", {"tool_call": call})
    made.call, made.result = call, result
    return made


def family_call(rng, held, family):
    """(tool, question, call's turn) of a family, with what the tool gives back and what is said then."""
    tool, params = of_family(rng, family)
    values = [drawn(rng, held, kind) for _, kind in family[1]]
    ask = rng.choice(family[3])
    shape, answer = rng.choice(family[4])
    given = {}
    for key, kind in shape.items():
        if kind == "#":
            given[key] = rng.randint(1, rng.choice((30, 99, 9999)))
        elif kind.startswith("!"):
            given[key] = {"true": True}.get(kind[1:], kind[1:])
        else:
            given[key] = drawn(rng, held, kind)
    name = tool["function"]["name"]
    think = f"The tool {name} fits."
    made = call_turn(ask.format(*values), name, dict(zip(params, values)), think)
    made.result = json.dumps(given, ensure_ascii=False)
    made.final = answer.format(*values, **given)
    return tool, made


def tool_call(rng, held):
    """Tools, and a question that needs one of them; often the result and the answer too."""
    if rng.random() < 0.4:
        tool, ask, values = arbitrary(rng, held)
        name = tool["function"]["name"]
        made = call_turn(ask, name, values, f"The tool {name} fits.")
        result = words.phrase(rng, held, 2) if rng.random() < 0.5 else rng.randint(0, 9999)
        made.result = json.dumps({"result": result})
        made.final = f"The result is {result}."
        families = list(FAMILIES)
    else:
        family = rng.choice(FAMILIES)
        tool, made = family_call(rng, held, family)
        families = [other for other in FAMILIES if other is not family]
    tools = [tool] + others(rng, families, {tool["function"]["name"]}, rng.choice((0, 0, 1, 1, 2, 3)))
    rng.shuffle(tools)
    turns = [made]
    if rng.random() < 0.55:
        turns.append(Turn(None, made.final, f"The tool gave {made.result}.", "tool_result", {"equals": made.final}))
    return tools, turns


def others(rng, families, taken, count):
    """Tools that are not meant."""
    found = []
    for family in rng.sample(families, count):
        tool, _ = of_family(rng, family) if rng.random() < 0.7 else (arbitrary(rng, False)[0], None)
        if tool["function"]["name"] not in taken:
            taken.add(tool["function"]["name"])
            found.append(tool)
    return found


NO_TOOL = ("I have no tool for that.",)


def unfit(rng, held):
    """Tools, and a question that needs one that is not there."""
    family = rng.choice(FAMILIES)
    _, made = family_call(rng, held, family)
    tools = others(rng, [other for other in FAMILIES if other is not family], set(), rng.choice((1, 1, 2, 3)))
    turn = Turn(made.user, NO_TOOL[0], "No tool fits.", "no_tool", {"calls": False, "equals": NO_TOOL[0]})
    return tools, [turn]


def some(rng):
    """Tools that happen to be there while something else is asked."""
    return others(rng, list(FAMILIES), set(), rng.choice((1, 1, 2, 3)))
