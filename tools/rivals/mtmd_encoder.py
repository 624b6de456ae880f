"""llama.cpp's library for images, `mtmd`, on one tower: for measurements, and as a reference for rows."""

import ctypes
import time

import numpy
from llama_cpp import llama_cpp as low
from llama_cpp import mtmd_cpp as mtmd

# llama.cpp calls this until the process ends, so that it must not be collected.
SILENT = low.llama_log_callback(lambda *_: None)


class Encoder:
    """llama.cpp with one tower; as a reference with attention in f32, and with another least number of rows than is usual."""

    def __init__(self, mmproj, text, threads, exact=False, rows_min=-1):
        low.llama_log_set(SILENT, None)
        mtmd.mtmd_log_set(SILENT, None)
        mtmd.mtmd_helper_log_set(SILENT, None)
        low.llama_backend_init()
        self.model = low.llama_model_load_from_file(str(text).encode(), low.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {text}")
        params = mtmd.mtmd_context_params_default()
        params.use_gpu, params.print_timings, params.warmup = False, False, False
        params.n_threads = threads
        params.image_min_tokens = rows_min
        if exact:
            params.flash_attn_type = low.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = mtmd.mtmd_init_from_file(str(mmproj).encode(), self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp does not load {mmproj}")

    def chunks(self, levels):
        """The chunks of a picture, (height, width, 3) of 8 bits, in the order of the prompt, without those of text."""
        height, width, _ = levels.shape
        levels = numpy.ascontiguousarray(levels)
        bitmap = mtmd.mtmd_bitmap_init(width, height, levels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
        marker = mtmd.mtmd_default_marker()
        words = mtmd.mtmd_input_text(text=marker, text_len=len(marker), add_special=False, parse_special=True)
        self.all = mtmd.mtmd_input_chunks_init()
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        if mtmd.mtmd_tokenize(self.context, self.all, ctypes.byref(words), bitmaps, 1):
            raise RuntimeError("mtmd_tokenize failed")
        chunks = [mtmd.mtmd_input_chunks_get(self.all, at) for at in range(mtmd.mtmd_input_chunks_size(self.all))]
        return [chunk for chunk in chunks if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE]

    def encode(self, chunk):
        """Seconds, those of the processor, and the rows."""
        begin, used = time.perf_counter(), time.process_time()
        if mtmd.mtmd_encode_chunk(self.context, chunk):
            raise RuntimeError("mtmd_encode_chunk failed")
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        width = low.llama_model_n_embd_inp(self.model)
        floats = numpy.ctypeslib.as_array(mtmd.mtmd_get_output_embd(self.context), (rows, width))
        return seconds, used, floats.copy()

    def positions(self, chunk, first):
        """Time, height and width of each row of a chunk that begins at the position `first`, and the position that follows; and
        whether the text has positions on three axes."""
        image = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        places = [mtmd.mtmd_image_tokens_get_decoder_pos(image, first, row)
                  for row in range(mtmd.mtmd_input_chunk_get_n_tokens(chunk))]
        places = [(place.t, place.y, place.x) for place in places]
        return places, first + mtmd.mtmd_input_chunk_get_n_pos(chunk), mtmd.mtmd_decode_use_mrope(self.context)

    def logits(self, before, parts, after, vocab):
        """Logits of the tokens before and after an image of chunks with these rows, at llama.cpp's positions and with its masks."""
        params = low.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.flash_attn_type, params.swa_full = low.LLAMA_FLASH_ATTN_TYPE_DISABLED, True
        params.type_k = params.type_v = low.GGML_TYPE_F32
        context = low.llama_init_from_model(self.model, params)
        found = [tokens_of(context, before, 0, vocab)]
        position = ctypes.c_int32(len(before))
        for chunk, rows in parts:
            rows = numpy.ascontiguousarray(rows, numpy.float32).ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            nothing = mtmd.mtmd_helper_post_decode_callback(0)
            if mtmd.mtmd_helper_decode_image_chunk(self.context, context, chunk, rows, position.value, 0, 512,
                                                   ctypes.byref(position), nothing, None):
                raise RuntimeError("mtmd_helper_decode_image_chunk failed")
        found.append(tokens_of(context, after, position.value, vocab))
        low.llama_free(context)
        return numpy.concatenate(found)

    def close(self):
        mtmd.mtmd_free(self.context)
        low.llama_model_free(self.model)


def tokens_of(context, tokens, first, vocab):
    """The logits of tokens from the position `first` on."""
    batch = low.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for at, token in enumerate(tokens):
        batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, first + at, 1, 1
        batch.seq_id[at][0] = 0
    if low.llama_decode(context, batch):
        raise RuntimeError("llama_decode failed")
    found = [numpy.ctypeslib.as_array(low.llama_get_logits_ith(context, at), (vocab,)).copy() for at in range(len(tokens))]
    low.llama_batch_free(batch)
    return numpy.array(found)
