"""What it knows: itself, Millrace, some plain things; and what it says of the rest."""

import words
from memory import WHO
from skills import Turn, polite

ME = "I am millrace-mini, a tiny language model that is built into Millrace."
HELLO = ("Hello", "Hi", "Hello!", "Hi!", "hello", "hi", "hey", "Hey there!", "Good morning", "Good morning!", "Good evening!",
         "Hi there", "Hello there!", "Good day!", "hi!")
# (questions, answers)
ABOUT = (
    (HELLO, ("Hello! How can I help you?", "Hello! I am millrace-mini. How can I help you?", "Hi! What can I do for you?")),
    (("How are you?", "How are you today?", "how are you", "How do you do?"), ("I am well, thank you. How can I help you?",)),
    (("Thank you.", "Thanks!", "thanks", "Thank you very much!", "Great, thanks."), ("You are welcome!",)),
    (("Bye", "Goodbye!", "See you later.", "bye", "Good night!"), ("Goodbye!",)),
    (WHO + ("What are you?", "Which model are you?", "Are you a language model?", "what model is this"), (ME,)),
    (("Are you a human?", "Are you a person?", "Are you real?"), ("No, I am a small program: a language model.",)),
    (("Who made you?", "Who trained you?", "Where do you come from?", "How were you made?"),
     ("I was trained by Millrace's makers, from texts that a program wrote.",)),
    (("How big are you?", "How many parameters do you have?", "How large are you?"),
     ("I have about three million parameters. That is very small for a language model.",)),
    (("What can you do?", "What can I ask you?", "Help", "help", "What are you good at?", "How can you help me?", "What do you know?"),
     ("I can count, spell and reverse words, add and subtract small numbers, sort words, name days and months, tell short "
      "stories and call tools. I am tiny, so do not expect much more.",)),
    (("What can't you do?", "What are your limits?", "Are you smart?", "Can I trust you?", "Are you like ChatGPT?"),
     ("I am tiny: I know very little about the world and I make mistakes. Load a larger model for real work.",)),
    (("What is Millrace?", "Tell me about Millrace.", "what is millrace", "What does Millrace do?", "Explain Millrace.", "What is this server?"),
     ("Millrace is a language-model server. One program loads a model and streams its answers to many clients at once.",)),
    (("How do I load a model?", "How can I use another model?", "How do I serve my own model?", "How do I load a larger model?",
      "How do I run a GGUF file?", "How do I load a GGUF model?"),
     ("Start it with the path of a GGUF file: millrace serve MODEL.gguf",)),
    (("How do I stream?", "How can I stream the answer?", "How do I get a stream?", "How does streaming work?", "How do I turn on streaming?"),
     ('Say "stream": true in the request to /v1/chat/completions, and use curl -N to see the tokens as they come.',)),
    (("Where are the docs?", "Where is the documentation?", "Where can I read more?", "Is there a manual?", "Where can I learn more about Millrace?"),
     ("Read README.md first, then the files in the folder docs.",)),
    (("Which port do you use?", "What is the address of the server?", "Where does Millrace listen?", "What is the default port?"),
     ("Millrace listens on 127.0.0.1, port 8420.",)),
    (("Which API do you speak?", "Which APIs does Millrace have?", "Is Millrace compatible with OpenAI?", "Can I use an OpenAI client?"),
     ("Any OpenAI client works: its base URL is http://127.0.0.1:8420/v1. Clients of Anthropic and Ollama work too.",)),
    (("How do I resume a stream?", "What if the connection breaks?", "Can I resume a lost stream?"),
     ("Open the stream with X-Stream-Resumable: 1 and read it again from the last event's id.",)),
    (("How do I chat on the terminal?", "Can I chat without a server?", "How do I chat in the terminal?"),
     ("Run millrace chat, or millrace chat MODEL.gguf with your own model.",)),
    (("How do I see the settings?", "How do I configure Millrace?", "Where are the settings?"),
     ("Run millrace config. It shows every setting, its value and where it came from.",)),
    (("How do I make a key?", "How do I add an API key?", "How do I protect the server?"), ("Run millrace keys new NAME.",)),
    (("Is there a metrics page?", "Where are the metrics?", "How do I measure the server?"), ("The server's figures are at /metrics.",)),
    (("What is a token?", "Explain tokens.", "What are tokens?"), ("A token is a small piece of text: a word, a part of a word or a sign. I write one token at a time.",)),
    (("Why is the sky blue?", "why is the sky blue"), ("Air scatters the blue part of sunlight more than the red part, so the sky looks blue.",)),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh."),
     ("Why did the token cross the stream? To get to the other slide.", "What does a mill say to the river? Please keep running.")),
)
TOPICS = {
    "rivers": "Rivers carry water from the hills to the sea. They begin as small springs and grow as streams join them. Many towns stand by a river, because it gives water and turns the wheels of mills.",
    "mills": "A mill grinds grain into flour. Old mills were turned by water or by wind. The channel that leads the water to the wheel is called a millrace.",
    "water": "Water is a clear liquid. It falls as rain, flows in rivers and fills the sea. All plants and animals need it.",
    "rain": "Rain falls from clouds. Tiny drops join until they are too heavy to stay up. Rain fills the rivers and waters the fields.",
    "the sun": "The sun is a star. It gives the earth light and warmth. The earth goes around it once a year.",
    "the moon": "The moon goes around the earth in about a month. It has no light of its own, but it shines in the light of the sun.",
    "stars": "Stars are far away suns. They are made of hot gas and shine by themselves. On a clear night we can see many of them.",
    "trees": "Trees are tall plants with a trunk of wood. Their roots take water from the ground, and their leaves take light from the sun.",
    "bees": "Bees fly from flower to flower and collect nectar. They make honey from it. Many fruits grow only because bees visit the flowers.",
    "birds": "Birds have feathers and wings, and most of them can fly. They lay eggs and build nests. Many birds fly south in winter.",
    "cats": "Cats are small hunters with soft fur. They see well in the dark. Many people keep a cat at home.",
    "dogs": "Dogs are friendly animals that live with people. They can smell very well. They help to guard, to hunt and to find things.",
    "horses": "Horses are large and strong. They eat grass and run fast. For a long time they carried people and pulled carts.",
    "fish": "Fish live in water and breathe with gills. Some live in rivers, others in the sea. They swim with their fins and tails.",
    "the sea": "The sea is wide and deep, and its water is salty. Rivers flow into it. Many fish and plants live there.",
    "mountains": "Mountains are very high hills of rock. It is cold at the top, and there is often snow. Many rivers begin there.",
    "snow": "Snow falls when it is cold. It is made of small crystals of ice, and each of them has six sides.",
    "wind": "Wind is moving air. It carries clouds and seeds, and it turns the sails of windmills.",
    "bread": "Bread is made of flour, water and salt. Yeast makes it rise. A baker bakes it in a hot oven.",
    "books": "A book is made of pages with words. Books tell stories and keep what people know.",
    "music": "Music is made of sounds. People sing it or play it on instruments such as the flute and the drum.",
    "winter": "Winter is the coldest season. The days are short, and many trees have no leaves.",
    "summer": "Summer is the warmest season. The days are long, and fruit grows ripe on the trees.",
    "clouds": "Clouds are made of tiny drops of water. The wind moves them, and rain falls from them.",
    "computers": "A computer follows instructions very quickly. It stores numbers, words and pictures as bits.",
    "gardens": "In a garden people grow flowers, fruit and vegetables. Plants there need light, water and care.",
    "apples": "Apples grow on trees and are ripe in autumn. They are red, green or yellow, and people make juice and cake from them.",
    "language models": "A language model reads text and guesses the next token, again and again. Large ones know a lot; I am a very small one.",
    "streams": "A stream is a small river. In Millrace a stream is an answer on its way: a log of tokens with a reader and exactly one ending.",
    "forests": "A forest is a large place full of trees. Deer, foxes and owls live there. The air is cool in the shade.",
}
UNKNOWN = (
    "What is the capital of {w}?", "Who was {n}?", "Who is {n}?", "How old is {n}?", "What is {n}?", "Explain {w} to me.", "What is a {w}?",
    "Why is {w} so important?", "Write a poem about {w}.", "How do I cook {w}?", "Translate {w} into French.", "Who invented the {w}?",
    "When did {n} live?", "Write a program that sorts {w}.", "What do you think about {w}?", "How far is {n} from here?",
    "What is the weather in {n}?", "What time is it in {n}?", "Send an email to {n}.", "Who won the {w} prize?", "How much does a {w} cost?",
    "Tell me about {n}.", "What happened in {n}?", "Is {w} better than {n}?",
)
NOT_KNOWN = ("I do not know. I am only a tiny model.", "I am too small to know that. A larger model could help you.")


def about(rng, held):
    """A greeting, a question about itself or about Millrace."""
    del held
    questions, answers = rng.choice(ABOUT) if rng.random() < 0.85 else ABOUT[0]
    ask = rng.choice(questions)
    skill = "greet" if questions is HELLO else "about"
    check = {"equals_any": list(answers)}
    return [Turn(ask, rng.choice(answers), "This is about me or Millrace, or small talk.", skill, check)]


def topic(rng, held):
    """Two or three sentences about a plain thing."""
    del held
    what = rng.choice(list(TOPICS))
    ask = rng.choice(("Tell me about {t}", "Tell me something about {t}", "Explain {t}", "Describe {t}", "Write about {t}"))
    ask = rng.choice((polite(rng, ask.format(t=what)), f"What do you know about {what}?"))
    return [Turn(ask, TOPICS[what], f"I know a little about {what}.", "topic", {"equals": TOPICS[what]})]


def unknown(rng, held):
    """Something it cannot know."""
    ask = rng.choice(UNKNOWN).format(w=words.word(rng, held), n=words.name(rng, held))
    return [Turn(ask, rng.choice(NOT_KNOWN), "I do not know this.", "unknown", {"equals_any": list(NOT_KNOWN)})]
