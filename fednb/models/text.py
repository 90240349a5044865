"""Text classifiers that read tokens, index 0 being padding: a bag of words and a convolutional network."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fednb.models.small import InputTooSmall

Text = tuple[int, int]  # (vocabulary, length)
EMBEDDED = 32  # numbers per token, PFLlib's hidden dimension for both models
KERNELS = (3, 4, 5)
CHANNELS = 100


class NotTokens(TypeError):
    """A text model was given numbers that are no token indices."""


def tokens(x: Tensor) -> Tensor:
    """Token indices as the embedding wants them; whole numbers of any kind are taken, real ones are not."""
    if x.is_floating_point():
        raise NotTokens(f"a text model reads token indices, an integer tensor [n, length]; this one is {x.dtype}.")
    return x.long()


class Embedding(nn.Embedding):
    """A vector per token, zero for padding, whatever noise or filter has done to the first row of the weights.

    The first row starts at zero and never gets a gradient, as with PyTorch's padding_idx. In the flattened weight
    frequency goes along the vocabulary: where that is sorted by how common tokens are, smooth trends are real ones.
    """

    def __init__(self, vocabulary: int):
        super().__init__(vocabulary, EMBEDDED)
        with torch.no_grad():
            self.weight[0] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (x != 0).unsqueeze(-1)


class FastText(nn.Module):
    """The mean of the tokens' vectors, and two linear layers with nothing between them (after Joulin et al. 2017)."""

    def __init__(self, classes: int, vocabulary: int):
        super().__init__()
        self.embedding = Embedding(vocabulary)
        self.fc1 = nn.Linear(EMBEDDED, EMBEDDED)
        self.fc = nn.Linear(EMBEDDED, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = tokens(x)
        count = (x != 0).sum(-1, keepdim=True).clamp_min(1)  # an empty text has the mean zero
        return self.fc(self.fc1(self.embedding(x).sum(-2) / count))


class TextCnn(nn.Module):
    """Convolutions over 3, 4 and 5 tokens, the largest answer of each, and a linear layer (Kim 2014)."""

    def __init__(self, classes: int, vocabulary: int):
        super().__init__()
        self.embedding = Embedding(vocabulary)
        self.conv1, self.conv2, self.conv3 = (nn.Conv1d(EMBEDDED, CHANNELS, kernel) for kernel in KERNELS)
        self.fc = nn.Linear(CHANNELS * len(KERNELS), classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(tokens(x)).transpose(-1, -2)
        found = [functional.relu(conv(x).amax(-1)) for conv in (self.conv1, self.conv2, self.conv3)]
        return self.fc(torch.cat(found, dim=-1))


def fasttext(classes: int, input: Text) -> FastText:
    """PFLlib's fastText (assumed for SpecGradFilter's Table IX): embedding 32, mean, linear 32-32, linear 32-classes.

    3,157,706 parameters for 10 classes and PFLlib's 98,635 tokens. PFLlib divides by the full length, padding included;
    we divide by the count of real tokens, so that padding more changes nothing.
    """
    return FastText(classes, input[0])


def textcnn(classes: int, input: Text) -> TextCnn:
    """PFLlib's TextCNN: embedding 32, 100 channels for each of the kernels 3, 4 and 5.

    PFLlib has a dropout of 0.8 before the linear layer and we have none: randomness inside a model would make its
    gradient another one on every engine.
    """
    if input[1] < max(KERNELS):
        raise InputTooSmall(f"'textcnn' needs texts of at least {max(KERNELS)} tokens, not {input[1]}. Use 'fasttext'.")
    return TextCnn(classes, input[0])


TEXTS = {"fasttext": fasttext, "textcnn": textcnn}
