"""Small torch models and data that harnesses and rule pages share. Imported inside trials alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform: (batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        shape = (batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A language model in small: embedding, blocks, logits over the words."""

    def __init__(self, layers: int = 4, width: int = 512, words: int = 8192, heads: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, tokens, words) for word numbers (batch, tokens)."""
        return self.head(self.blocks(self.embedding(ids)))  # type: ignore[no-any-return]


class TokenBatches:
    """A loader of random word numbers and next words, made on the host anew at each step."""

    def __init__(self, steps: int, batch: int = 4, tokens: int = 512, words: int = 8192) -> None:
        self.steps, self.shape, self.words = steps, (batch, tokens), words

    def __len__(self) -> int:
        return self.steps

    def __iter__(self):  # type: ignore[no-untyped-def]
        for _ in range(self.steps):
            yield torch.randint(self.words, self.shape), torch.randint(self.words, self.shape)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of every token's next word."""
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
