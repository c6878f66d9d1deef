# SPDX-License-Identifier: Apache-2.0
"""The single-GPU training configurations that are measured, and the rows they become.

A configuration is a whole network (embedding, a few layers, head, loss, Adam) small enough for one
GPU. The widths are those of well-known networks, the depth is cut to what fits.
"""

import dataclasses
import hashlib

COLUMNS = (
    "id,config_id,source,source_ref,year,model_family,model_name,params_b,layers,hidden,heads,"
    "kv_heads,head_dim,ffn_hidden,gated_mlp,vocab,seq_len,tied_embeddings,experts,top_k,"
    "moe_ffn_hidden,shared_expert_ffn,first_dense_layers,precision,precision_detail,gpu,gpus,"
    "gpus_per_node,intra_node,inter_node,framework,attention_impl,tp,cp,ep,pp,vpp,dp,zero_stage,"
    "sequence_parallel,recompute,recompute_detail,schedule,variant,micro_batch,num_microbatches,"
    "global_batch,overlap,measured_metric,measured_value,aux_metrics,flops_convention,confidence,"
    "inferred_fields,notes"
).split(",")

# The name that studies/rows/framework_facts.cpp knows.
FRAMEWORK = "PyTorch single GPU"


@dataclasses.dataclass(frozen=True)
class Configuration:
    name: str
    family: str  # gpt, llama, mixtral (LLaMA blocks with experts)
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn_hidden: int
    vocab: int
    seq_len: int
    micro_batch: int
    micro_batches: int = 1
    experts: int = 0
    top_k: int = 0
    precision: str = "bf16"
    fused_attention: bool = True
    recompute: str = "none"  # none, selective (attention core), full (every layer)
    compiled: bool = False  # torch.compile

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def gated(self):
        return self.family != "gpt"

    @property
    def tied(self):
        return self.family == "gpt"

    @property
    def batch(self):
        return self.micro_batch * self.micro_batches

    def parameters(self):
        h = self.hidden
        attention = h * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        matrices = (3 if self.gated else 2) * h * self.ffn_hidden
        mlp = matrices * max(1, self.experts) + h * self.experts
        if self.family == "gpt":
            attention += self.head_dim * (self.heads + 2 * self.kv_heads) + h
            mlp += self.ffn_hidden + h
            return self.layers * (attention + mlp + 4 * h) + h * (self.vocab + self.seq_len) + 2 * h
        return self.layers * (attention + mlp + 2 * h) + 2 * h * self.vocab + h

    def memory_estimate(self):
        """Bytes, roughly: to leave out what cannot fit, not to predict."""
        state = 18 * self.parameters()
        tokens = self.micro_batch * self.seq_len
        layer = tokens * (20 * self.hidden + 6 * self.ffn_hidden * max(1, self.top_k))
        if not self.fused_attention and self.recompute == "none":
            layer += 6 * self.micro_batch * self.heads * self.seq_len**2
        kept = 2 * tokens * self.hidden if self.recompute == "full" else layer
        return state + self.layers * kept + layer + 14 * tokens * self.vocab


def _gpt(name, layers, hidden, heads, **more):
    return Configuration(
        name=name, family="gpt", layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        ffn_hidden=4 * hidden, vocab=50304, **more)


def _llama(name, layers, hidden, heads, kv_heads, ffn, vocab=32000, **more):
    return Configuration(
        name=name, family="llama", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads,
        ffn_hidden=ffn, vocab=vocab, **more)


def _moe(name, layers, hidden, heads, kv_heads, ffn, experts, top_k, **more):
    return Configuration(
        name=name, family="mixtral", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads,
        ffn_hidden=ffn, vocab=32000, experts=experts, top_k=top_k, **more)


CONFIGURATIONS = [
    _gpt("gpt-125m", 12, 768, 12, seq_len=1024, micro_batch=8),
    _gpt("gpt-125m", 12, 768, 12, seq_len=1024, micro_batch=8, fused_attention=False),
    _gpt("gpt-355m", 24, 1024, 16, seq_len=2048, micro_batch=4, micro_batches=4),
    _gpt("gpt-355m", 24, 1024, 16, seq_len=2048, micro_batch=4, recompute="full"),
    _gpt("gpt-1.3b", 24, 2048, 32, seq_len=2048, micro_batch=4),
    _gpt("gpt-1.3b", 24, 2048, 32, seq_len=2048, micro_batch=4, fused_attention=False,
         recompute="selective"),
    _gpt("gpt-1.3b", 24, 2048, 32, seq_len=2048, micro_batch=8, recompute="full"),
    _gpt("gpt-2.7b", 32, 2560, 32, seq_len=2048, micro_batch=2, compiled=True),
    _llama("llama-160m", 12, 768, 12, 12, 2048, seq_len=4096, micro_batch=4),
    _llama("llama-1.1b", 22, 2048, 32, 4, 5632, seq_len=2048, micro_batch=4),
    _llama("llama-1.1b", 22, 2048, 32, 4, 5632, seq_len=2048, micro_batch=4, compiled=True),
    _llama("llama-1.1b", 22, 2048, 32, 4, 5632, seq_len=16384, micro_batch=1, recompute="full"),
    _llama("llama-1.1b", 22, 2048, 32, 4, 5632, seq_len=32768, micro_batch=1, recompute="full"),
    _llama("llama-7b-8layers", 8, 4096, 32, 32, 11008, seq_len=4096, micro_batch=1),
    _llama("llama-7b-8layers", 8, 4096, 32, 32, 11008, seq_len=4096, micro_batch=2,
           micro_batches=4, recompute="full"),
    _llama("llama3-8b-6layers", 6, 4096, 32, 8, 14336, vocab=128256, seq_len=8192, micro_batch=1),
    _llama("llama3-8b-6layers", 6, 4096, 32, 8, 14336, vocab=128256, seq_len=8192, micro_batch=1,
           compiled=True),
    _llama("llama3-8b-6layers", 6, 4096, 32, 8, 14336, vocab=128256, seq_len=8192, micro_batch=1,
           precision="fp8", compiled=True),
    _llama("llama-7b-8layers", 8, 4096, 32, 32, 11008, seq_len=4096, micro_batch=2,
           precision="fp8", compiled=True),
    _llama("llama3-70b-3layers", 3, 8192, 64, 8, 28672, vocab=32000, seq_len=4096, micro_batch=1),
    _llama("llama3-8b", 32, 4096, 32, 8, 14336, vocab=128256, seq_len=4096, micro_batch=1,
           recompute="full"),
    _moe("mixtral-8x7b-2layers", 2, 4096, 32, 8, 14336, 8, 2, seq_len=4096, micro_batch=1),
    _moe("moe-16x0.3b", 8, 1024, 16, 16, 2816, 16, 2, seq_len=2048, micro_batch=4),
    _moe("moe-16x0.3b", 8, 1024, 16, 16, 2816, 16, 2, seq_len=2048, micro_batch=4,
         recompute="full"),
]


def config_id(config):
    text = repr(dataclasses.astuple(config))
    return "GT1-" + hashlib.sha256(text.encode()).hexdigest()[:8]


def notes_of(config):
    notes = ["one GPU", "Adam with fp32 master weights and gradients accumulated in fp32",
             "dropout 0"]
    if config.compiled:
        notes.append("torch.compile")
    if config.experts:
        notes.append("experts evenly loaded, one batched GEMM a projection, dropless")
    if config.precision == "fp8":
        notes.append("linear layers by torch._scaled_mm, scales from the tensor's largest value")
    return "; ".join(notes)


def row(config, environment, metric, value, aux):
    """One measurement row. `environment`: gpu, year, versions (text)."""
    attention = "flash (PyTorch SDPA)" if config.fused_attention else "unfused (matmul, softmax)"
    cells = {
        "id": config_id(config) + ("t" if metric == "iteration_s" else "m"),
        "config_id": config_id(config),
        "source": "calibrate/ground_truth",
        "source_ref": environment["versions"],
        "year": environment["year"],
        "model_family": config.family,
        "model_name": config.name,
        "params_b": f"{config.parameters() / 1e9:.4g}",
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "ffn_hidden": config.ffn_hidden,
        "gated_mlp": int(config.gated),
        "vocab": config.vocab,
        "seq_len": config.seq_len,
        "tied_embeddings": int(config.tied),
        "precision": config.precision,
        "precision_detail": "per-tensor dynamic scaling" if config.precision == "fp8" else "",
        "gpu": environment["gpu"],
        "gpus": 1,
        "gpus_per_node": 1,
        "intra_node": "n/a",
        "inter_node": "n/a",
        "framework": FRAMEWORK,
        "attention_impl": attention,
        "zero_stage": 0,
        "sequence_parallel": 0,
        "recompute": config.recompute,
        "recompute_detail": {"full": "every layer", "selective": "attention core"}.get(
            config.recompute, ""),
        "schedule": "none",
        "micro_batch": config.micro_batch,
        "num_microbatches": config.micro_batches,
        "global_batch": config.batch,
        "overlap": "none",
        "measured_metric": metric,
        "measured_value": value,
        "aux_metrics": ";".join(f"{key}={text}" for key, text in aux.items()),
        "confidence": "full",
        "notes": notes_of(config),
    }
    cells.update({axis: 1 for axis in ("tp", "cp", "ep", "pp", "vpp", "dp")})
    if config.experts:
        cells.update({"experts": config.experts, "top_k": config.top_k,
                      "moe_ffn_hidden": config.ffn_hidden, "first_dense_layers": 0})
    return [cells.get(column, "") for column in COLUMNS]
