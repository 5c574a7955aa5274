# SPDX-License-Identifier: Apache-2.0
"""A training pass of WanTransformer3DModel in fewer passes over memory: bf16 between the products, f32 in the residual
stream. On processors with AMX the products of the small model take only a tenth of the time of a step.

    processor = quicken(model)     processor.bias [B, rows of text] is added to the logits of cross attention
"""
import types
import torch


class Rope(torch.autograd.Function):
    """Turns the pairs of x [B, L, H, D] by the unit complex numbers z [L, 1, D / 2]."""

    @staticmethod
    def turn(x, z):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * z).flatten(-2).to(x.dtype)

    @staticmethod
    def forward(ctx, x, z):
        ctx.save_for_backward(z)
        return Rope.turn(x, z)

    @staticmethod
    def backward(ctx, g):
        return Rope.turn(g, ctx.saved_tensors[0].conj().resolve_conj()), None


class Norm(torch.autograd.Function):
    """RMSNorm over the last axis with weights w, in the type of x."""

    @staticmethod
    def forward(ctx, x, w, eps):
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square()
        r = torch.rsqrt(squares / x.shape[-1] + eps)
        n = x * r.to(x.dtype)
        ctx.save_for_backward(n, w, r)
        return n * w.to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        n, w, r = ctx.saved_tensors
        gn = g * w.to(g.dtype)
        gx = (gn - n * (gn * n).mean(-1, keepdim=True)) * r.to(g.dtype)
        return gx, (g * n).sum((0, 1)).to(w.dtype), None


class Attention(torch.autograd.Function):
    """softmax(q k^T / sqrt(D) + bias) v for q, k, v [N, rows, D] in bf16; bias [N, rows of q, rows of k] or a view of it."""

    @staticmethod
    def forward(ctx, q, k, v, bias=None):
        scale = q.shape[-1] ** -0.5
        logits = torch.bmm(q * scale, k.transpose(1, 2)) if bias is None else \
            torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        p = torch.softmax(logits, -1)
        ctx.save_for_backward(q, k, v, p)
        return torch.bmm(p, v)

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        gv = torch.bmm(p.transpose(1, 2), g)
        gs = torch._softmax_backward_data(torch.bmm(g, v.transpose(1, 2)), p, -1, p.dtype)
        scale = q.shape[-1] ** -0.5
        return torch.bmm(gs, k) * scale, torch.bmm(gs.transpose(1, 2), q) * scale, gv, None


def split_heads(x, heads):
    """[B, rows, heads * D] to [B * heads, rows, D]."""
    return x.view(x.shape[0], -1, heads, x.shape[-1] // heads).transpose(1, 2).flatten(0, 1)


def join_heads(x, heads):
    return x.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)


class SelfAttention:
    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None, **kw):
        x, h = hidden_states.to(torch.bfloat16), attn.heads
        cos, sin = rotary_emb
        z = torch.complex(cos[0, :, :, 0::2].contiguous(), sin[0, :, :, 1::2].contiguous())
        turned = lambda y, norm: Rope.apply(Norm.apply(y, norm.weight, 1e-6).unflatten(2, (h, -1)), z).flatten(2)
        q, k = turned(attn.to_q(x), attn.norm_q), turned(attn.to_k(x), attn.norm_k)
        out = Attention.apply(split_heads(q, h), split_heads(k, h), split_heads(attn.to_v(x), h))
        return attn.to_out[0](join_heads(out, h))


class CrossAttention:
    bias = None

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None, **kw):
        x, y, h = hidden_states, encoder_hidden_states, attn.heads
        q, k = Norm.apply(attn.to_q(x), attn.norm_q.weight, 1e-6), Norm.apply(attn.to_k(y), attn.norm_k.weight, 1e-6)
        bias = self.bias[:, None].expand(-1, h, -1).flatten(0, 1)[:, None].to(torch.bfloat16)
        out = Attention.apply(split_heads(q, h), split_heads(k, h), split_heads(attn.to_v(y), h),
                              bias.expand(-1, x.shape[1], -1))
        return attn.to_out[0](join_heads(out, h))


class NormScaled(torch.autograd.Function):
    """LayerNorm of x [B, L, C] in f32, times w plus b, in bf16; w and b are [B, 1, C] or [C]."""

    @staticmethod
    def forward(ctx, x, w, b, eps):
        n, mean, rstd = torch.native_layer_norm(x, (x.shape[-1],), None, None, eps)
        n = n.to(torch.bfloat16)
        ctx.save_for_backward(x, mean, rstd, n, w)
        return torch.addcmul(b.to(torch.bfloat16), n, w.to(torch.bfloat16))

    @staticmethod
    def backward(ctx, g):
        x, mean, rstd, n, w = ctx.saved_tensors
        each = w.dim() == 3
        total = lambda y: y.sum((1,) if each else (0, 1), keepdim=each, dtype=torch.float32)
        gx = torch.ops.aten.native_layer_norm_backward(torch.mul(g, w.to(torch.bfloat16)).float(), x, (x.shape[-1],), mean,
                                                       rstd, None, None, [True, False, False])[0]
        return gx, total(g * n), total(g), None


class Gate(torch.autograd.Function):
    """x + gate * y for x in f32, y in bf16 and gate [B, 1, C]."""

    @staticmethod
    def forward(ctx, x, y, gate):
        ctx.save_for_backward(y, gate)
        return torch.addcmul(x, y.float(), gate)

    @staticmethod
    def backward(ctx, g):
        y, gate = ctx.saved_tensors
        half = g.to(torch.bfloat16)
        return g, half * gate.to(torch.bfloat16), (half * y).sum(1, keepdim=True, dtype=torch.float32)


def block_forward(self, hidden_states, encoder_hidden_states, temb, rotary_emb):
    """WanTransformerBlock.forward."""
    x = hidden_states.float()
    b1, w1, g1, b2, w2, g2 = (self.scale_shift_table + temb.float()).chunk(6, dim=1)
    x = Gate.apply(x, self.attn1(NormScaled.apply(x, 1 + w1, b1, 1e-6), None, None, rotary_emb), g1)
    x = x + self.attn2(NormScaled.apply(x, self.norm2.weight, self.norm2.bias, 1e-6), encoder_hidden_states, None, None)
    return Gate.apply(x, self.ffn(NormScaled.apply(x, 1 + w2, b2, 1e-6)), g2)


def quicken(model):
    """Makes the blocks of a model compute with the functions above. Returns the processor of cross-attention."""
    own, cross = SelfAttention(), CrossAttention()
    for block in model.blocks:
        block.attn1.set_processor(own)
        block.attn2.set_processor(cross)
        block.forward = types.MethodType(block_forward, block)
    return cross
