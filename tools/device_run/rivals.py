"""The second command on a machine with a GPU: llama.cpp with its Vulkan backend on the models of the first.

    python3 rivals.py MODEL.gguf SHAPE STEPS PROMPT-TOKENS

The library comes from npm as a binary without headers. Its structures are passed in memory, so ones that are larger than they are
declared here do no harm, and of their fields only the first are named, which have been at these places since 2024.
"""

import ctypes
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = HERE / "llama.cpp"
ROUNDS = 2


class Params(ctypes.Structure):
    """Of a model or of a context, with room."""

    _fields_ = [("words", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def library():
    """llama.cpp's functions, with their types."""
    ctypes.CDLL(HERE / "libvulkan.so.1", ctypes.RTLD_GLOBAL)
    for name in ("libggml-base*.so*", "libggml.*.so*"):
        for path in sorted(LIBRARIES.glob(name)):
            ggml = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load_all_from_path(str(LIBRARIES).encode())
    llama = ctypes.CDLL(next(LIBRARIES.glob("libllama.*.so*")), ctypes.RTLD_GLOBAL)
    pointer = ctypes.c_void_p
    for name, given, returned in [
        ("llama_model_default_params", [], Params),
        ("llama_context_default_params", [], Params),
        ("llama_model_load_from_file", [ctypes.c_char_p, Params], pointer),
        ("llama_init_from_model", [pointer, Params], pointer),
        ("llama_batch_init", [ctypes.c_int32] * 3, Batch),
        ("llama_decode", [pointer, Batch], ctypes.c_int32),
        ("llama_synchronize", [pointer], None),
        ("llama_get_memory", [pointer], pointer),
        ("llama_memory_clear", [pointer, ctypes.c_bool], None),
        ("llama_free", [pointer], None),
        ("llama_model_free", [pointer], None),
    ]:
        function = getattr(llama, name)
        function.argtypes, function.restype = given, returned
    # Only errors are of interest.
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    llama.quiet = quiet(lambda level, text, _: sys.stderr.write(text.decode(errors="replace")) if level == 4 else None)
    llama.llama_log_set(llama.quiet, None)
    llama.llama_backend_init()
    return llama


class Model:
    def __init__(self, llama, path, sequences, positions):
        self.llama, self.sequences = llama, sequences
        params = llama.llama_model_default_params()
        params.words[4] = 999  # n_gpu_layers, after two pointers
        self.model = llama.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, f"{path} is not loaded"
        params = llama.llama_context_default_params()
        # n_ctx, n_batch, n_ubatch, n_seq_max
        params.words[0:4] = [positions * sequences, max(512, sequences), 512, sequences]
        self.context = llama.llama_init_from_model(self.model, params)
        assert self.context, "no context"
        self.batch = llama.llama_batch_init(max(512, sequences), 0, 1)

    def decode(self, rows):
        """Computes rows of (token, position, sequence, wanted)."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wanted
        assert self.llama.llama_decode(self.context, self.batch) == 0
        self.llama.llama_synchronize(self.context)

    def clear(self):
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)

    def steps(self, steps):
        for step in range(steps):
            self.decode([((step * 37 + sequence) % 256, step, sequence, 1) for sequence in range(self.sequences)])

    def prompt(self, tokens):
        for first in range(0, tokens, 512):
            rows = range(first, min(first + 512, tokens))
            self.decode([(position * 37 % 256, position, 0, int(position == tokens - 1)) for position in rows])

    def free(self):
        self.llama.llama_free(self.context)
        self.llama.llama_model_free(self.model)


def seconds(model, work, *given):
    """The shortest of some rounds, after one that is not measured."""
    found = []
    for _ in range(ROUNDS + 1):
        model.clear()
        begun = time.perf_counter()
        work(*given)
        found.append(time.perf_counter() - begun)
    return min(found[1:])


def main():
    path, shape, steps, tokens = sys.argv[1:]
    steps, tokens = int(steps), int(tokens)
    llama = library()
    for sequences in (1, 8, 32):
        model = Model(llama, path, sequences, max(steps, tokens if sequences == 1 else 0) + 64)
        took = seconds(model, model.steps, steps)
        rate, each = steps * sequences / took, 1e3 * took / steps
        print(f"{shape}, {sequences} sequences: {rate:.1f} tokens/s, {each:.3f} ms a step", flush=True)
        if sequences == 1:
            took = seconds(model, model.prompt, tokens)
            print(f"{shape}, prompt of {tokens}: {tokens / took:.1f} tokens/s", flush=True)
        model.free()


main()
