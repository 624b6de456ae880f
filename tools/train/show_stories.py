"""Asks a running server for twenty stories, the first that a seed gives, and prints them as Markdown:
`python show_stories.py http://127.0.0.1:8420 [SEED]`."""

import json
import random
import sys
import urllib.request

import stories


def main():
    url, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    rng = random.Random(seed)
    for number in range(1, 21):
        asked = stories.story(rng, True)[0].user
        body = {"messages": [{"role": "user", "content": asked}], "temperature": 0.7, "seed": number, "max_tokens": 600}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            said = json.load(reply)["choices"][0]["message"]["content"]
        print(f"{number}. *{asked}*\n")
        print("\n".join(f"   {line}".rstrip() for line in said.splitlines()) + "\n")


if __name__ == "__main__":
    main()
