"""Our PageCache beside SGLang's own trees, without a GPU: every request must find the same number of tokens.

`RadixCache` has all policies but tlru; `UnifiedRadixCache`, which servers use, those that a server can be started with.
"""

from __future__ import annotations

import importlib.util
import os
from array import array

import pytest

from prefixlint.caches.pages import POLICIES, PageCache

from .traces import play, random_trace

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
if importlib.util.find_spec("sglang") is None:
    pytest.skip("sglang is not installed; tests/oracles/run.sh installs it", allow_module_level=True)

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

pytestmark = pytest.mark.oracle
TRACES = int(os.environ.get("PREFIXLINT_ORACLE_TRACES", "10000"))


class Pool:
    """Stands in for SGLang's token pool: it only counts."""

    device = torch.device("cpu")

    def __init__(self, capacity, page):
        self.free = capacity // page * page

    def free_segment(self, indices, start_pos=0, **_):
        self.free += len(indices)


class Running:
    def __init__(self, namespace, prompt, hit, release, held):
        self.namespace, self.prompt, self.output = namespace, prompt, []
        self.hit, self.release, self.protected, self.inserted, self.held = hit, release, hit, 0, held
        self.chunked = False


class SGLang:
    """The life of a request as SGLang's scheduler lives it (schedule_batch.py, mem_cache/common.py), over its cache."""

    def __init__(self, tree, capacity, page, policy, chunk):
        self.page, self.pool, self.chunk = page, Pool(capacity, page), chunk
        self.unified = tree == "unified"
        params = {
            "disable": False,
            "req_to_token_pool": None,
            "token_to_kv_pool_allocator": self.pool,
            "page_size": page,
            "eviction_policy": policy.partition(":")[0],
        }
        if policy.startswith("tlru"):
            threshold, estimate = map(int, policy.partition(":")[2].split("+"))
            params["eviction_policy_config"] = {"threshold": threshold, "next_prompt_estimate": estimate}
        if self.unified:
            self.tree = UnifiedRadixCache(CacheInitParams(**params, tree_components=(ComponentType.FULL,)))
        else:
            self.tree = RadixCache(CacheInitParams(**params))

    def _key(self, ids, namespace):
        return RadixKey(array("q", ids), namespace)

    def _match(self, ids, namespace):
        found = self.tree.match_prefix(MatchPrefixParams(key=self._key(ids, namespace)))
        return found.last_device_node, found.device_prefix_len

    def _lock(self, node):
        lock = self.tree.inc_lock_ref(node)
        if self.unified:
            return lambda: self.tree.dec_lock_ref(node, lock.to_dec_params())
        return lambda: self.tree.dec_lock_ref(node)

    def _room(self, tokens):
        short = tokens - self.pool.free
        if short > 0:
            self.tree.evict(EvictParams(num_tokens=short))

    def _pages(self, tokens):
        return -(-tokens // self.page) * self.page

    def admit(self, namespace, prompt):
        prompt = prompt.tolist()
        node, hit = self._match(prompt[:-1], namespace)
        release = self._lock(node)
        taken = self._pages(len(prompt)) - hit
        if taken > self.pool.free + self.tree.evictable_size():
            release()
            return None
        self._room(len(prompt) - hit + (self.page if self.page > 1 else 0))
        assert self.pool.free >= taken
        self.pool.free -= taken
        return Running(namespace, prompt, hit, release, self._pages(len(prompt)))

    def _chunks(self, request):
        if self.chunk and not request.chunked:
            for end in range(request.hit + self.chunk, len(request.prompt), self.chunk):
                self._checkpoint(request, request.prompt[:end], split=False)
        request.chunked = True

    def _checkpoint(self, request, ids, *, split):
        whole = len(ids) // self.page * self.page
        if not whole:
            return 0
        key = self._key(ids[:whole], request.namespace)
        protected = {"prev_prefix_len": request.protected} if self.unified else {}
        found = self.tree.insert(
            InsertParams(key=key, value=torch.arange(whole), inserted_len=request.inserted, **protected)
        )
        request.inserted = max(request.inserted, whole)
        prompt = len(request.prompt) // self.page * self.page
        if split and 0 < prompt < whole:
            key = self._key(ids[:prompt], request.namespace)
            protected = {"prev_prefix_len": prompt} if self.unified else {}
            self.tree.insert(
                InsertParams(key=key, value=torch.arange(prompt), priority=1, inserted_len=prompt, **protected)
            )
        if not self.unified:  # which gives the pages that it had already back itself
            self.pool.free += max(0, found.prefix_len - request.protected)
        node, length = self._match(ids[:whole], request.namespace)
        release = self._lock(node)
        request.release()
        request.release, request.protected = release, length
        return whole

    def prefilled(self, request):
        self._chunks(request)
        self._checkpoint(request, request.prompt, split=False)

    def generate(self, request, tokens):
        for done, token in enumerate(tokens.tolist()):
            size = len(request.prompt) + len(request.output)
            self._room(self.page)
            if size % self.page == 0:
                if self.pool.free < self.page:
                    return done
                self.pool.free -= self.page
                request.held += self.page
            request.output.append(token)
        return len(tokens)

    def finish(self, request):
        self._chunks(request)
        whole = self._checkpoint(request, request.prompt + request.output, split=True)
        self.pool.free += request.held - whole
        request.release()


TRIED = [("radix", policy) for policy in POLICIES]
TRIED += [("unified", policy) for policy in ("lru", "lfu", "slru", "priority", "tlru:8+0", "tlru:40+12")]


@pytest.mark.parametrize(("tree", "policy"), TRIED)
def test_every_request_finds_what_sglang_finds(tree, policy):
    share = -(-TRACES // len(TRIED))
    refused = evicted = 0
    for seed in range(share):
        trace = random_trace(seed * len(TRIED) + TRIED.index((tree, policy)), [1, 1, 2, 4, 16])
        chunk = (None, 16, 48)[seed % 3]  # pages divide them, as they do on a server
        ours = PageCache(trace.capacity, page=trace.granularity, policy=policy, chunk=chunk)
        expected = play(SGLang(tree, trace.capacity, trace.granularity, policy, chunk), trace)
        assert play(ours, trace) == expected, f"seed {seed}"
        refused += expected.count(None)
        evicted += ours.evicted > 0
    # the traces must reach what they are made for
    assert evicted > share / 4
    assert refused > share / 50
