"""The recurrent network of Shakespeare's text: characters in, the next character out."""

from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from fednb.models.text import Text, tokens


class Lstm(nn.Module):
    """Layers of long short-term memory: `[n, length, narrow]` to `[n, length, hidden]`, from a state of zeros.

    Written with plain matrix products, because torch.nn.LSTM cannot be stacked by vmap. Parameters have its names,
    shapes, order and start (weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_ih_l1, ...), and the outputs and
    gradients are its own.
    """

    def __init__(self, narrow: int, hidden: int, layers: int):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        for layer in range(layers):
            shapes = {
                "weight_ih": (4 * hidden, hidden if layer else narrow),
                "weight_hh": (4 * hidden, hidden),
                "bias_ih": (4 * hidden,),
                "bias_hh": (4 * hidden,),
            }
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape)))
        for weight in self.parameters():
            nn.init.uniform_(weight, -1 / sqrt(hidden), 1 / sqrt(hidden))

    def forward(self, x: Tensor) -> Tensor:
        for layer in range(self.layers):
            x = self.pass_through(layer, x)
        return x

    def pass_through(self, layer: int, x: Tensor) -> Tensor:
        """One layer: i, f, o = σ(...), g = tanh(...) of W x_t + U h + b;  c ← f c + i g;  h ← o tanh(c)"""
        w, u, b, b2 = (getattr(self, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        ahead = functional.linear(x, w, b + b2)  # the inputs' share, for all positions in one product
        h = c = ahead.new_zeros(*ahead.shape[:-2], self.hidden)
        seen = []
        for given in ahead.unbind(-2):
            i, f, g, o = (given + functional.linear(h, u)).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            seen.append(h)
        return torch.stack(seen, dim=-2)


class CharLstm(nn.Module):
    """An embedding of 8 for each character, two LSTM layers, and a linear layer behind the last position."""

    def __init__(self, classes: int, vocabulary: int, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.lstm = Lstm(8, hidden, layers=2)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(self.embedding(tokens(x)))[..., -1, :])


def lstm(classes: int, input: Text, hidden: int) -> CharLstm:
    """The Shakespeare model of wenzhu23333/Federated-Learning (FedFFT, Table 12), whose hidden layers have 256.

    819,920 parameters for 80 characters. That code has a dropout of 0.5 before the linear layer and we have none:
    randomness inside a model would make its gradient another one on every engine.
    """
    return CharLstm(classes, input[0], hidden)


LSTMS = {"lstm": partial(lstm, hidden=256), "lstm-small": partial(lstm, hidden=32)}  # small: for the smoke scale
