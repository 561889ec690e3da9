"""Our BlockCache beside vLLM's own KVCacheManager, without a GPU: every request must find the same number of tokens."""

from __future__ import annotations

import importlib.util
import inspect
import os

import pytest

from prefixlint.caches.blocks import BlockCache

from .traces import play, random_trace

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed; tests/oracles/run.sh installs it", allow_module_level=True)

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
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
