# SPDX-License-Identifier: Apache-2.0
"""One configuration as plain PyTorch: network, optimizer, timing. Needs torch and a CUDA device.

Parameters are bf16. Gradients are added to fp32 buffers as soon as they exist, Adam updates fp32
master weights, which are copied back: 18 bytes a parameter, as mixed-precision training keeps them.
"""

import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WARM_UP_STEPS = 4
MIN_STEPS = 8
MAX_STEPS = 50
MIN_SECONDS = 8.0


class Fp8Matmul(torch.autograd.Function):
    """x @ weight.T with both operands in fp8, e4m3 forward and e5m2 gradients."""

    @staticmethod
    def quantise(tensor, dtype):
        scale = torch.finfo(dtype).max / tensor.abs().amax().float().clamp(min=1e-12)
        return (tensor.float() * scale).to(dtype), scale.reciprocal()

    @staticmethod
    def multiply(a, a_scale, b, b_scale):
        # Row-major times column-major is what the kernel wants.
        return torch._scaled_mm(a.contiguous(), b.t().contiguous().t(), scale_a=a_scale,
                                scale_b=b_scale, out_dtype=torch.bfloat16)

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        a, a_scale = Fp8Matmul.quantise(x, torch.float8_e4m3fn)
        b, b_scale = Fp8Matmul.quantise(weight, torch.float8_e4m3fn)
        return Fp8Matmul.multiply(a, a_scale, b.t(), b_scale)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        g, g_scale = Fp8Matmul.quantise(grad, torch.float8_e5m2)
        w, w_scale = Fp8Matmul.quantise(weight, torch.float8_e4m3fn)
        a, a_scale = Fp8Matmul.quantise(x, torch.float8_e4m3fn)
        return (Fp8Matmul.multiply(g, g_scale, w, w_scale),
                Fp8Matmul.multiply(g.t(), g_scale, a, a_scale))


class Linear(nn.Linear):
    fp8 = False

    def forward(self, x):
        if not self.fp8:
            return super().forward(x)
        rows = x.reshape(-1, x.shape[-1])
        result = Fp8Matmul.apply(rows, self.weight).reshape(*x.shape[:-1], -1)
        return result if self.bias is None else result + self.bias


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        bias = config.family == "gpt"
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.qkv = Linear(config.hidden, width, bias=bias)
        self.out = Linear(config.hidden, config.hidden, bias=bias)

    def core(self, q, k, v):
        config = self.config
        if config.fused_attention:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(
                    q, k, v, is_causal=True, enable_gqa=config.heads != config.kv_heads)
        group = config.heads // config.kv_heads
        k = k.repeat_interleave(group, dim=1)
        v = v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) * config.head_dim**-0.5
        length = scores.shape[-1]
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(mask, float("-inf")).softmax(dim=-1) @ v

    def forward(self, x, angles):
        config = self.config
        batch, length, _ = x.shape
        parts = [config.heads * config.head_dim] + 2 * [config.kv_heads * config.head_dim]
        q, k, v = (part.view(batch, length, -1, config.head_dim).transpose(1, 2)
                   for part in self.qkv(x).split(parts, dim=-1))
        if angles is not None:
            q, k = rotate(q, *angles), rotate(k, *angles)
        if config.recompute == "selective" and torch.is_grad_enabled():
            context = checkpoint(self.core, q, k, v, use_reentrant=False)
        else:
            context = self.core(q, k, v)
        return self.out(context.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gated = config.gated
        bias = config.family == "gpt"
        self.up = Linear(config.hidden, config.ffn_hidden * (2 if self.gated else 1), bias=bias)
        self.down = Linear(config.ffn_hidden, config.hidden, bias=bias)

    def forward(self, x):
        if self.gated:
            gate, up = self.up(x).chunk(2, dim=-1)
            return self.down(F.silu(gate) * up)
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Experts(nn.Module):
    """Top-k experts under a forced even load, so that the time does not depend on the routing."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.router = nn.Linear(config.hidden, config.experts, bias=False)
        shape = (config.experts, config.hidden, 2 * config.ffn_hidden)
        self.up = nn.Parameter(torch.empty(shape).normal_(std=0.02))
        self.down = nn.Parameter(
            torch.empty(config.experts, config.ffn_hidden, config.hidden).normal_(std=0.02))

    def forward(self, x):
        config = self.config
        tokens = x.reshape(-1, config.hidden)
        weights = self.router(tokens).float().softmax(dim=-1).topk(config.top_k, dim=-1).values
        copies = torch.arange(tokens.shape[0] * config.top_k, device=x.device)
        # Copy i goes to expert i mod E; sorted by expert, that is a transposed view of the copies.
        order = copies.view(-1, config.experts).t().reshape(-1)
        sent = tokens[order // config.top_k].view(config.experts, -1, config.hidden)
        gate, up = torch.bmm(sent, self.up).chunk(2, dim=-1)
        results = torch.bmm(F.silu(gate) * up, self.down).view(-1, config.hidden)
        returned = torch.empty_like(results).index_copy(0, order, results)
        returned = returned.view(-1, config.top_k, config.hidden)
        return (returned * weights.unsqueeze(-1).to(x.dtype)).sum(dim=1).view_as(x)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        norm = nn.LayerNorm if config.family == "gpt" else nn.RMSNorm
        self.norm1, self.norm2 = norm(config.hidden), norm(config.hidden)
        self.attention = Attention(config)
        self.mlp = Experts(config) if config.experts else Mlp(config)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


class Network(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        if config.family == "gpt":
            self.positions = nn.Embedding(config.seq_len, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = (nn.LayerNorm if config.family == "gpt" else nn.RMSNorm)(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight

    def angles(self, device):
        half = self.config.head_dim // 2
        rates = 10000.0 ** (-torch.arange(half, device=device) / half)
        angles = torch.arange(self.config.seq_len, device=device).unsqueeze(1) * rates
        return angles.cos().bfloat16(), angles.sin().bfloat16()

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        if self.config.family == "gpt":
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            angles = None
        else:
            angles = self.angles(tokens.device)
        for layer in self.layers:
            if self.config.recompute == "full":
                x = checkpoint(layer, x, angles, use_reentrant=False)
            else:
                x = layer(x, angles)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


class MixedPrecisionAdam:
    def __init__(self, network):
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.master = [p.detach().float() for p in self.parameters]
        for master, parameter in zip(self.master, self.parameters):
            master.grad = torch.zeros_like(master)
            parameter.register_post_accumulate_grad_hook(self.adder(master.grad))
        self.adam = torch.optim.AdamW(self.master, lr=1e-4, betas=(0.9, 0.95), fused=True)

    @staticmethod
    def adder(main):
        def add(parameter):
            main.add_(parameter.grad)
            parameter.grad = None

        return add

    @torch.no_grad()
    def step(self):
        self.adam.step()
        torch._foreach_copy_(self.parameters, self.master)
        torch._foreach_zero_([master.grad for master in self.master])


def measure(config):
    """Seconds (median and quartiles) and peak memory of one training step, as a dictionary."""
    torch.manual_seed(1)
    device = torch.device("cuda")
    Linear.fp8 = config.precision == "fp8"
    with device:
        network = Network(config).bfloat16()
    optimizer = MixedPrecisionAdam(network)
    run = torch.compile(network) if config.compiled else network
    shape = (config.micro_batches, config.micro_batch, config.seq_len)
    tokens = torch.randint(config.vocab, shape, device=device)
    labels = torch.randint(config.vocab, shape, device=device)

    def step():
        for micro in range(config.micro_batches):
            (run(tokens[micro], labels[micro]) / config.micro_batches).backward()
        optimizer.step()

    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    begin = time.perf_counter()
    while len(seconds) < MIN_STEPS or (
            time.perf_counter() - begin < MIN_SECONDS and len(seconds) < MAX_STEPS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    quartiles = statistics.quantiles(seconds, n=4)
    return {
        "median_s": statistics.median(seconds),
        "p25_s": quartiles[0],
        "p75_s": quartiles[2],
        "repetitions": len(seconds),
        "allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }


def environment():
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "memory": properties.total_memory,
        "fp8": torch.cuda.get_device_capability(0) >= (8, 9) and hasattr(torch, "_scaled_mm"),
        "versions": f"torch {torch.__version__}, CUDA {torch.version.cuda}, {properties.name}",
    }
