"""Checks that the parts agree: `python -m vision.check RUN TEXT.gguf TOWER.gguf`, with transformers installed.

The template renders as `dialogues.py` writes; `reference.py` computes what `network.py` and transformers' SmolVLM compute;
the tile is that of transformers' image processor.
"""

import random
import sys

import numpy as np
import torch
from PIL import Image
from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from vision import batches, dialogues, drawing, network, reference, scenes


def unpaired(weight, heads):
    """Rows of q or k from neighboring pairs to halves, as transformers turns them."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def transformers_model(model):
    """SmolVLM of transformers with the weights of the files."""
    tower, text = model.tower, model.text
    key = lambda name: text.file.fields[f"llama.{name}"]
    dim, wide = tower.file["v.patch_embd.bias"].shape[0], text.file["token_embd.weight"].shape
    config = SmolVLMConfig(
        image_token_id=text.vocab.ids["<image>"],
        scale_factor=tower.shuffle,
        vision_config={"hidden_size": dim, "intermediate_size": tower.file["v.blk.0.ffn_up.bias"].shape[0], "num_hidden_layers": tower.layers,
                       "num_attention_heads": tower.heads, "image_size": drawing.TILE, "patch_size": tower.patch, "hidden_act": "gelu_pytorch_tanh",
                       "layer_norm_eps": tower.eps},
        text_config={"model_type": "llama", "vocab_size": wide[0], "hidden_size": wide[1], "num_hidden_layers": text.layers,
                     "num_attention_heads": text.heads, "num_key_value_heads": text.kv_heads, "head_dim": key("attention.key_length"),
                     "intermediate_size": key("feed_forward_length"), "rms_norm_eps": text.eps, "max_position_embeddings": key("context_length"),
                     "rope_theta": text.base, "tie_word_embeddings": True, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 2},
        tie_word_embeddings=True, attn_implementation="eager",
    )  # fmt: skip
    made = SmolVLMForConditionalGeneration(config).float().eval()
    state = dict(text_state(text)) | dict(tower_state(tower))
    missing, unexpected = made.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    made.tie_weights()
    return made


def text_state(text):
    at = "model.text_model."
    yield at + "embed_tokens.weight", text.file["token_embd.weight"]
    yield at + "norm.weight", text.file["output_norm.weight"]
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}  # fmt: skip
    for layer in range(text.layers):
        for ours, theirs in names.items():
            weight = text.file[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):
                weight = unpaired(weight, text.heads if ours == "attn_q" else text.kv_heads)
            yield f"{at}layers.{layer}.{theirs}.weight", weight


def tower_state(tower):
    at = "model.vision_model."
    yield "model.connector.modality_projection.proj.weight", tower.file["mm.model.fc.weight"]
    yield at + "embeddings.position_embedding.weight", tower.file["v.position_embd.weight"]
    names = {"ln1": "layer_norm1", "ln2": "layer_norm2", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_out": "self_attn.out_proj", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"}  # fmt: skip
    for part in ("weight", "bias"):
        yield f"{at}embeddings.patch_embedding.{part}", tower.file[f"v.patch_embd.{part}"]
        yield f"{at}post_layernorm.{part}", tower.file[f"v.post_ln.{part}"]
        for layer in range(tower.layers):
            for ours, theirs in names.items():
                yield f"{at}encoder.layers.{layer}.{theirs}.{part}", tower.file[f"v.blk.{layer}.{ours}.{part}"]


def check_tiles(rng, processor):
    """Bytes of tiles, over many sizes."""
    for _ in range(300):
        size = (rng.randint(1, 300), rng.randint(1, 300))
        picture = Image.fromarray(np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        seen = processor.preprocess([picture], do_normalize=False, do_rescale=False, return_tensors="np")["pixel_values"]
        assert seen.shape[1] == 1, (size, seen.shape)
        assert (seen[0, 0].transpose(1, 2, 0).astype(np.uint8) == drawing.tile(picture)).all(), size


def check_template(rng, template):
    """A question with a picture, a system prompt, two pictures, a tool."""
    for _ in range(200):
        system, question = rng.choice(dialogues.SYSTEMS), "What is this?"
        parts = [{"type": "image"}, {"type": "text", "text": question}]
        messages = [{"role": "system", "content": system}, {"role": "user", "content": parts}, {"role": "assistant", "content": "A red ring."},
                    {"role": "user", "content": parts[::-1]}]  # fmt: skip
        wanted = f"<|im_start|>system\n{system}<|im_end|>\n" + dialogues.user(dialogues.IMAGE + question) + "A red ring.<|im_end|>\n"
        wanted += dialogues.user(question + dialogues.IMAGE)
        found = template.render(messages=messages, add_generation_prompt=True).replace("<image>", dialogues.IMAGE)
        assert found == wanted, f"{found}\n---\n{wanted}"
    sample = dialogues.tool(rng, False)
    written = "".join(text for text, _ in sample.start[:-1])
    call = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "look", "description": "Takes a picture.", "parameters": {"type": "object", "properties": {}}}}]
    messages = [{"role": "user", "content": "What do you see?"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "image"}]}]  # fmt: skip
    found = template.render(messages=messages, tools=tools, add_generation_prompt=True).replace("<image>", dialogues.IMAGE)
    assert found.count("<tool_call>") == written.count("<tool_call>") == 1 and found.endswith(f"<|im_start|>tool\n{dialogues.IMAGE}<|im_end|>\n{dialogues.ASSISTANT}"), found
    assert found.startswith("<|im_start|>system\n<tools>\nlook {} Takes a picture.\n</tools><|im_end|>\n"), found


def main():
    run, text, tower = sys.argv[1:]
    model, rng = reference.Model(text, tower), random.Random(11)
    check_template(rng, model.text.template)
    edge = {"longest_edge": drawing.TILE}
    processor = SmolVLMImageProcessorPil(size=edge, max_image_size=edge, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    check_tiles(rng, processor)
    theirs = transformers_model(model)
    kept = torch.load(f"{run}/checkpoint.pt", weights_only=True)
    trained = network.Seeing(model.text.vocab)
    trained.load_state_dict(kept["model"])
    worst = 0.0
    for _ in range(20):
        picture = drawing.draw(rng, scenes.scene(rng))
        prompt = model.text.vocab.encode(model.prompt(reference.asked("What is in this picture?", [picture])))
        ours = model.text.logits(model.embedded(prompt, [picture]))
        pixels = processor.preprocess([picture], return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            other = theirs(input_ids=torch.tensor([prompt]), pixel_values=pixels).logits[0].numpy()
        worst = max(worst, np.abs(ours - other).max() / np.abs(other).max())
        assert worst < 1e-4, worst
    batch = batches.batch(model.text.vocab, [dialogues.branches(rng, False) for _ in range(4)])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        likeliest = trained(batch)[0].argmax(-1)
    agreed = (likeliest == batch.wanted).float().mean().item()
    print(f"template, tiles: alike; logits differ from transformers' by {worst:.1e} at most; training's network is right in {agreed:.1%} of tokens")


if __name__ == "__main__":
    main()
