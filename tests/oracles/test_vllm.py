"""Our BlockCache beside vLLM's own KVCacheManager, without a GPU: every request must find the same number of tokens.

What we read of a model's states is held beside what vLLM's own models say of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from types import SimpleNamespace

import pytest

from prefixlint.caches.blocks import BlockCache
from prefixlint.shapes import shape
from tests import hybridconfigs

from .traces import play, random_trace

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed; tests/oracles/run.sh installs it", allow_module_level=True)

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.request import Request

try:
    from vllm.utils.hashing import sha256
except ImportError:
    from vllm.utils import sha256

pytestmark = pytest.mark.oracle
TRACES = int(os.environ.get("PREFIXLINT_ORACLE_TRACES", "10000"))
PARTS = 8  # of the traces, which run beside one another
init_none_hash(sha256)


class VLLM:
    """The life of a request as vLLM's scheduler lives it, over its KVCacheManager."""

    def __init__(self, capacity, block):
        spec = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=capacity // block, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        known = inspect.signature(KVCacheManager.__init__).parameters
        options = {"max_model_len": 100_000, "enable_caching": True, "hash_block_size": block}
        options |= {"max_num_batched_tokens": 100_000, "scheduler_block_size": block}
        self.manager = KVCacheManager(config, **{k: v for k, v in options.items() if k in known})
        self.hasher = get_request_block_hasher(block, sha256)
        self.number = 0

    def admit(self, namespace, prompt):
        self.number += 1
        known = inspect.signature(Request.__init__).parameters
        options = {
            "request_id": str(self.number),
            "prompt_token_ids": prompt.tolist(),
            "sampling_params": SamplingParams(max_tokens=1000),
            "pooling_params": None,
            "eos_token_id": None,
            "block_hasher": self.hasher,
            "cache_salt": namespace,
        }
        request = Request(**{k: v for k, v in options.items() if k in known})
        blocks, hit, *_ = self.manager.get_computed_blocks(request)
        if self.manager.allocate_slots(request, prompt.size - hit, hit, blocks) is None:
            return None
        request.num_computed_tokens = prompt.size
        request.hit = hit
        return request

    def prefilled(self, request):
        pass

    def generate(self, request, tokens):
        for done, token in enumerate(tokens.tolist()):
            request.append_output_token_ids(token)
            if self.manager.allocate_slots(request, 1) is None:
                return done
            request.num_computed_tokens += 1
        return len(tokens)

    def finish(self, request):
        self.manager.free(request)

    def free_queue(self):
        return [block.block_id for block in self.manager.block_pool.free_block_queue.get_all_free_blocks()]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_request_finds_what_vllm_finds(part):
    refused = hits = 0
    seeds = range(part, TRACES, PARTS)
    for seed in seeds:
        trace = random_trace(seed, [1, 2, 4, 16])
        ours, theirs = BlockCache(trace.capacity, block=trace.granularity), VLLM(trace.capacity, trace.granularity)
        expected = play(theirs, trace)
        assert play(ours, trace) == expected, f"seed {seed}"
        # our block 0 is their block 1: theirs is the null block
        assert [block + 1 for block in ours.free_queue()] == theirs.free_queue(), f"seed {seed}"
        refused += expected.count(None)
        hits += sum(1 for hit in expected if hit)
    # the traces must reach what they are made for
    assert hits > len(seeds)
    assert refused > len(seeds) / 50


STATES = {
    "qwen3_next": ("qwen3_next", "Qwen3NextForCausalLM", hybridconfigs.QWEN3_NEXT, "auto"),
    "qwen3_5": ("qwen3_next", "Qwen3NextForCausalLM", hybridconfigs.QWEN_27B["text_config"], "float32"),
    "nemotron_h": ("nemotron_h", "NemotronHForCausalLM", hybridconfigs.NEMOTRON_9B, "float32"),
    "jamba": ("jamba", "JambaForCausalLM", hybridconfigs.JAMBA, "auto"),
    "granitemoehybrid": ("granitemoehybrid", "GraniteMoeHybridForCausalLM", hybridconfigs.GRANITE, "auto"),
    "falcon_h1": ("falcon_h1", "FalconH1ForCausalLM", hybridconfigs.FALCON_H1, "auto"),
    "lfm2": ("lfm2", "Lfm2ForCausalLM", hybridconfigs.LFM2, "auto"),
}


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("kind", sorted(STATES))
def test_a_models_state_takes_what_vllm_says(kind, tp):
    module, name, config, precision = STATES[kind]
    model = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), name)
    own = SimpleNamespace(**config)
    cache = SimpleNamespace(mamba_cache_dtype="auto", mamba_ssm_cache_dtype=precision, use_replayssm=False)
    settings = SimpleNamespace(
        parallel_config=SimpleNamespace(tensor_parallel_size=tp),
        model_config=SimpleNamespace(hf_config=own, hf_text_config=own, dtype=torch.bfloat16),
        cache_config=cache,
        speculative_config=None,
        num_speculative_tokens=0,
    )
    theirs = MambaSpec(
        shapes=model.get_mamba_state_shape_from_config(settings),
        dtypes=model.get_mamba_state_dtype_from_config(settings),
        block_size=-1,
    )
    assert shape(config, name=kind).state.page_bytes(tp) == theirs.page_size_bytes
