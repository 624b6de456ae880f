"""llama.cpp as a library: the same batches as `millrace bench model` gives its own forward pass."""

import ctypes
import pathlib
import time

import llama_cpp
import numpy
from llama_cpp import llama_cpp as low

from llama_state import repeat

CHUNK = 512  # rows of one pass over a prompt
DEPTH = 64  # positions before decoding begins, when no context is asked for
KV_BYTES = 2  # of one element
KV_TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # ggml's numbers


def resident_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no VmRSS in /proc/self/status")


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class Library:
    """One model with a context for the tests asked for, (kind, batch, context) each, all of one batch."""

    def __init__(self, path, threads, steps, tests, flash, kv_type="f16"):
        low.llama_log_set(QUIET, None)
        low.llama_backend_init()
        self.steps = steps
        before = resident_bytes()
        start = time.perf_counter()
        self.model = low.llama_model_load_from_file(
            str(path).encode(), low.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        params = low.llama_context_default_params()
        positions = [context if kind == "prefill" else (context or DEPTH) + steps for kind, _, context in tests]
        params.n_seq_max = max(batch for _, batch, _ in tests)
        # Each sequence has positions of its own, with which llama.cpp is faster than with a common cache.
        params.kv_unified = False
        params.n_ctx = params.n_seq_max * -(-max(positions) // 256) * 256
        params.n_batch = params.n_ubatch = CHUNK
        params.flash_attn_type = (low.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash
                                  else low.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        params.type_k = params.type_v = KV_TYPES[kv_type]
        params.n_threads = params.n_threads_batch = threads
        self.context = low.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp gives no context")
        self.batch = low.llama_batch_init(CHUNK, 0, 1)
        self.filled = None
        self.run([(1, 0, 0, True)])
        self.ready_ms = 1e3 * (time.perf_counter() - start)
        self.before, self.positions = before, params.n_ctx

    def close(self):
        low.llama_batch_free(self.batch)
        low.llama_free(self.context)
        low.llama_model_free(self.model)

    def beyond_bytes(self, weights, position_bytes):
        """Resident memory that is neither the file's weights nor keys and values."""
        return resident_bytes() - self.before - weights - self.positions * position_bytes

    def run(self, rows):
        """Rows of (token, position, sequence, wants logits)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wants
        if low.llama_decode(self.context, self.batch):
            raise RuntimeError("llama_decode failed")
        low.llama_synchronize(self.context)

    def memory(self):
        return low.llama_get_memory(self.context)

    def fill(self, sequences, context):
        """Positions before `context` of each sequence; kept if they are there already."""
        if self.filled == (sequences, context):
            for sequence in range(sequences):
                low.llama_memory_seq_rm(self.memory(), sequence, context, -1)
            return
        low.llama_memory_clear(self.memory(), True)
        self.run([(i * 37 % 256, i, 0, False) for i in range(min(context, CHUNK))])
        state = numpy.zeros(low.llama_state_seq_get_size(self.context, 0), numpy.uint8)
        if low.llama_state_seq_get_data(self.context, pointer(state), state.size, 0) != state.size:
            raise RuntimeError("llama.cpp gives no state of a sequence")
        # Speed does not depend on what keys and values are.
        state = repeat(state, context)
        for sequence in range(sequences):
            if low.llama_state_seq_set_data(self.context, pointer(state), state.size, sequence) != state.size:
                raise RuntimeError(f"llama.cpp takes no {context} positions of sequence {sequence}")
        self.filled = sequences, context

    def rate(self, kind, batch, context):
        """Tokens per second of one test."""
        if kind == "prefill":
            return self.prefill(context)
        depth = context or DEPTH
        self.fill(batch, depth)
        self.run([(i, depth, i, True) for i in range(batch)])  # warm
        start = time.perf_counter()
        for step in range(1, self.steps):
            self.run([(i + step, depth + step, i, True) for i in range(batch)])
        return batch * (self.steps - 1) / (time.perf_counter() - start)

    def prefill(self, prompt):
        self.filled = None
        for _ in range(2 if prompt <= CHUNK else 1):  # the first is the warm-up, which a long prompt does not need
            low.llama_memory_clear(self.memory(), True)
            start = time.perf_counter()
            for first in range(0, prompt, CHUNK):
                rows = range(first, min(prompt, first + CHUNK))
                self.run([(i * 37 % 256, i, 0, i == prompt - 1) for i in rows])
            rate = prompt / (time.perf_counter() - start)
        return rate


QUIET = llama_cpp.llama_log_callback(lambda level, text, data: None)
