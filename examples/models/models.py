"""Shapes, recipes and checkpoint layout of the two bundled models."""

import types
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

VOCABULARY = {"bard": 768, "bard-moe": 1024}
ROUTER_LOSS_WEIGHT = 0.01  # load balancing; as in the Switch Transformer


@dataclass(frozen=True)
class Recipe:
    lr: float
    dropout: float
    weight_decay: float  # decoupled; large, since every token is seen over a hundred times
    bpe_dropout: float = 0.05
    steps: int = 2500
    patience: int = 15
    batch: int = 48
    streams: int = 12


# The best of about 20 settings tried for each, by validation loss.
RECIPES = {
    "bard": Recipe(lr=4e-3, dropout=0.25, weight_decay=4.0),
    "bard-moe": Recipe(lr=6e-3, dropout=0.2, weight_decay=5.0),
}


def recipe(name, args):
    keys = ["steps", "patience", "batch", "lr", "dropout", "bpe_dropout", "weight_decay"]
    given = {k: getattr(args, k) for k in keys if getattr(args, k) is not None}
    return replace(RECIPES[name], **given)


def config_dict(name):
    """The config.json. One model uses the keys of Transformers 5 (`dtype`, `rope_parameters`),
    the other those of the 4.x files (`torch_dtype`, `rope_theta`): readers meet both."""
    common = {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0,
        "head_dim": 64, "hidden_act": "silu", "initializer_range": 0.02,
        "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 3,
        "num_key_value_heads": 2, "tie_word_embeddings": True, "use_cache": True,
        "vocab_size": VOCABULARY[name],
    }
    if name == "bard":
        return common | {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
            "hidden_size": 256, "intermediate_size": 512, "mlp_bias": False,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        }
    return common | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "torch_dtype": "bfloat16", "hidden_size": 128, "intermediate_size": 384,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 128,
        "norm_topk_prob": True, "num_experts": 8, "num_experts_per_tok": 2,
        "output_router_logits": False, "rms_norm_eps": 1e-6, "rope_scaling": None,
        "rope_theta": 10000.0, "router_aux_loss_coef": ROUTER_LOSS_WEIGHT,
        "sliding_window": None, "use_sliding_window": False,
    }


def generation_config():
    return {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "do_sample": True,
            "temperature": 0.8, "top_k": 40}


def dense_experts(block, hidden):
    """A sparse block's function, with every expert run on every token and the unselected ones
    weighted zero: at this size far quicker than gathering tokens, and of static shape."""
    batch, length, width = hidden.shape
    tokens = hidden.reshape(-1, width)
    logits, weights, selected = block.gate(tokens)
    routing = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
    routing = routing.scatter(1, selected, weights.float())  # [tokens, experts]
    gate_up = torch.einsum("td,efd->tef", tokens, block.experts.gate_up_proj)
    gate, up = gate_up.chunk(2, dim=-1)
    inner = F.silu(gate) * up * routing[..., None].to(gate.dtype)
    out = torch.einsum("tef,edf->td", inner, block.experts.down_proj)

    # Share of the tokens sent to each expert times its mean probability: least when balanced.
    probabilities = logits.float().softmax(-1).mean(0)
    share = F.one_hot(selected, logits.shape[1]).sum(1).float().mean(0)
    block.balance = logits.shape[1] * (share * probabilities).sum()
    return out.reshape(batch, length, width)


def prepare_for_training(model, dropout):
    """Adds what the Transformers classes lack: residual dropout, and the dense expert block."""
    def drop(module, _, output):
        return F.dropout(output, dropout, training=module.training)

    model.model.embed_tokens.register_forward_hook(drop)
    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(drop)
        layer.mlp.register_forward_hook(drop)
        if hasattr(layer.mlp, "experts"):
            layer.mlp.forward = types.MethodType(dense_experts, layer.mlp)


def router_loss(model):
    terms = [layer.mlp.balance for layer in model.model.layers if hasattr(layer.mlp, "experts")]
    return sum(terms) / len(terms) if terms else 0.0


def checkpoint_tensors(weights):
    """BF16 tensors under their published names: one matrix an expert, no copy of the tied head."""
    tensors = {}
    for name, value in weights.items():
        if name == "lm_head.weight":
            continue
        prefix, is_experts, part = name.partition(".experts.")
        if not is_experts:
            tensors[name] = value
            continue
        for expert, matrix in enumerate(value):
            if part == "gate_up_proj":  # Transformers 5 stacks the two: gate first, then up
                gate, up = matrix.chunk(2, dim=0)
                tensors[f"{prefix}.experts.{expert}.gate_proj.weight"] = gate
                tensors[f"{prefix}.experts.{expert}.up_proj.weight"] = up
            else:
                tensors[f"{prefix}.experts.{expert}.down_proj.weight"] = matrix
    return {k: v.to(torch.bfloat16).contiguous() for k, v in tensors.items()}
