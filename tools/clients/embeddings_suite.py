"""LangChain's and LlamaIndex's clients for embeddings and reranking, unmodified, against a running server.

    python embeddings_suite.py PATH-OF-THE-MILLRACE-BINARY

They talk to synthetic models, whose vectors and scores mean nothing: what is checked is form, and that all clients get the
same numbers.
"""

import asyncio
import json
import math
import urllib.request

from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.postprocessor.jinaai_rerank import JinaRerank

from suite import check, run

TEXTS = ["the mill of the river", "a cat", "the capital of france is paris"]
QUERY = "the capital of france"
# Name, preset.
EMBEDDERS = [("embedder", "tiny-bert"), ("experts", "tiny-nomic-bert-moe"), ("gemma", "tiny-gemma-embedding"), ("qwen", "tiny-qwen3-embedding")]
RERANKERS = [("reranker", "tiny-xlm-r-rank"), ("judge", "tiny-qwen3-reranker")]


def added(server, models):
    for name, preset in models:
        server.add_model(name, preset)
        yield name


def posted(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def alike(found, expected):
    assert len(found) == len(expected) and all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(found, expected)), (found, expected)


@check
def embedding_clients(_, server):
    """OpenAIEmbeddings and OpenAILikeEmbedding: documents and a query, also asynchronously, with four models"""
    for model in added(server, EMBEDDERS):
        data = posted(server, "/v1/embeddings", {"model": model, "input": TEXTS})["data"]
        vectors = [entry["embedding"] for entry in data]
        # Without its check it sends texts, not tokens of OpenAI's vocabulary.
        there = {"model": model, "base_url": f"{server.url}/v1", "api_key": "none", "check_embedding_ctx_length": False}
        langchain = OpenAIEmbeddings(**there)
        llama_index = OpenAILikeEmbedding(model_name=model, api_base=f"{server.url}/v1", api_key="none", embed_batch_size=2)
        for found in (
            langchain.embed_documents(TEXTS),
            asyncio.run(langchain.aembed_documents(TEXTS)),
            llama_index.get_text_embedding_batch(TEXTS),
            asyncio.run(llama_index.aget_text_embedding_batch(TEXTS)),
        ):
            assert len(found) == len(TEXTS)
            for one, expected in zip(found, vectors):
                alike(one, expected)
        alike(langchain.embed_query(TEXTS[0]), vectors[0])
        alike(llama_index.get_query_embedding(TEXTS[0]), vectors[0])
        short = OpenAIEmbeddings(**there, dimensions=16).embed_query(TEXTS[0])
        assert len(short) == 16 and math.isclose(sum(x * x for x in short), 1, abs_tol=1e-5)


@check
def rerank_clients(_, server):
    """CohereRerank and JinaRerank: the best documents in order, with two models"""
    for model in added(server, RERANKERS):
        results = posted(server, "/v1/rerank", {"model": model, "query": QUERY, "documents": TEXTS})["results"]
        best = [(result["index"], result["relevance_score"]) for result in results][:2]
        cohere = CohereRerank(model=model, base_url=server.url, cohere_api_key="none", top_n=2)
        ranked = cohere.rerank(TEXTS, QUERY)
        assert [result["index"] for result in ranked] == [index for index, _ in best], ranked
        alike([result["relevance_score"] for result in ranked], [score for _, score in best])
        documents = cohere.compress_documents([Document(page_content=text) for text in TEXTS], QUERY)
        assert [document.page_content for document in documents] == [TEXTS[index] for index, _ in best]
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in TEXTS]
        jina = JinaRerank(model=model, base_url=f"{server.url}/v1", api_key="none", top_n=2)
        nodes = jina.postprocess_nodes(nodes, query_str=QUERY)
        assert [node.text for node in nodes] == [TEXTS[index] for index, _ in best]
        alike([node.score for node in nodes], [score for _, score in best])


if __name__ == "__main__":
    run(lambda url: url)
