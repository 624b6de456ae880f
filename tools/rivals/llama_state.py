"""The saved state of one sequence of llama.cpp, made longer by repeating its positions."""

import struct

import numpy

HEAD = struct.Struct("<IiII")  # magic, sequence, streams, positions of the first stream
CELL = struct.Struct("<iIi")  # position, number of sequences, sequence
LAYERS = struct.Struct("<II")  # whether values are transposed, layers
ROWS = struct.Struct("<iQ")  # type, bytes of one position
COLUMNS = struct.Struct("<iII")  # type, bytes of an element, elements of one position


def repeat(state, positions):
    """`state`: what `llama_state_seq_get_data` gives for sequence 0, as bytes in an array. The result has `positions`
    positions, whose keys and values are those of `state`, again and again."""
    magic, sequence, streams, given = HEAD.unpack_from(state)
    at = HEAD.size + given * CELL.size
    transposed, layers = LAYERS.unpack_from(state, at)
    parts = [HEAD.pack(magic, sequence, streams, positions)]
    parts += [CELL.pack(position, 1, 0) for position in range(positions)]
    parts.append(state[at:at + LAYERS.size])
    at += LAYERS.size
    times = -(-positions // given)
    for kind in [ROWS] * layers + [COLUMNS if transposed else ROWS] * layers:
        parts.append(state[at:at + kind.size])
        _, width, *elements = kind.unpack_from(state, at)
        at += kind.size
        rows = elements[0] if elements else 1
        data = state[at:at + given * width * rows].reshape(rows, given * width)
        at += data.size
        parts.append(numpy.tile(data, (1, times))[:, :positions * width].reshape(-1))
    parts.append(state[at:])
    return numpy.concatenate([numpy.frombuffer(part, numpy.uint8) for part in parts])
