"""Text models: our LSTM is PyTorch's, padding counts for nothing, and convolutions are PFLlib's without dropout."""

import pytest
import torch
from torch import nn

from fednb.models import InputTooSmall, NotTokens, build
from fednb.models.lstm import Lstm


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=str)
def test_lstm_is_pytorchs_in_value_and_gradient(dtype, atol):
    theirs = nn.LSTM(5, 7, num_layers=2, batch_first=True).to(dtype)
    ours = Lstm(5, 7, layers=2).to(dtype)
    assert [(k, v.shape) for k, v in ours.named_parameters()] == [(k, v.shape) for k, v in theirs.named_parameters()]
    ours.load_state_dict(theirs.state_dict())
    x, mix = (torch.randn(3, 9, width, generator=generator(), dtype=dtype) for width in (5, 7))
    out, (last, _) = theirs(x)
    torch.testing.assert_close(ours(x), out, atol=atol, rtol=0)
    torch.testing.assert_close(ours(x)[:, -1], last[-1], atol=atol, rtol=0)
    for net, answer in ((ours, ours(x)), (theirs, out)):
        (answer * mix).mean().backward()  # every position counts, each in its own way
        assert all(p.grad.abs().max() > 0 for p in net.parameters())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, atol=atol, rtol=0)


def test_lstm_starts_as_pytorchs_does_under_the_same_generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        theirs = nn.LSTM(8, 16, num_layers=2)
        torch.manual_seed(3)
        ours = Lstm(8, 16, layers=2)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_one_lstm_cell_by_hand():
    """All weights 0 but the biases: i = f = o = σ(0) = ½, g = tanh(1); c₁ = g/2, c₂ = c₁/2 + g/2, h = tanh(c)/2."""
    net = Lstm(1, 1, layers=1).double()
    for p in net.parameters():
        p.data.zero_()
    net.bias_ih_l0.data[2] = net.bias_hh_l0.data[2] = 0.5
    g = torch.tanh(torch.tensor(1.0, dtype=torch.float64))
    h = net(torch.zeros(1, 2, 1, dtype=torch.float64)).flatten()
    torch.testing.assert_close(h, torch.stack([torch.tanh(g / 2) / 2, torch.tanh(3 * g / 4) / 2]))


def test_the_answer_comes_from_the_last_position():
    """A whole network is embedding, LSTM and linear layer at the last character; the first character still matters."""
    net = build("lstm-small", 80, (80, 20)).double()
    x = torch.randint(80, (4, 20), generator=generator())
    torch.testing.assert_close(net(x), net.fc(net.lstm(net.embedding(x))[:, -1]), atol=0, rtol=0)
    other = x.clone()
    other[:, 0] = (x[:, 0] + 1) % 80
    assert not torch.equal(net(other), net(x))


def test_shapes_of_the_shakespeare_model():
    net = build("lstm", 80, (80, 80))
    assert net.embedding.weight.shape == (80, 8) and net.fc.weight.shape == (80, 256)
    assert net.lstm.weight_hh_l1.shape == net.lstm.weight_ih_l1.shape == (1024, 256)
    assert build("lstm", 80, (81, 80)).embedding.weight.shape == (81, 8)  # room for unknown characters


@pytest.mark.parametrize("name", ["fasttext", "textcnn"])
def test_padding_counts_for_nothing(name):
    """Whatever stands in the padding's row of the weights, answers are the same, and its gradient is zero."""
    net = build(name, 3, (11, 8)).double()
    assert net.embedding.weight[0].abs().max() == 0 and net.embedding.weight[1].abs().max() > 0
    x = torch.tensor([[5, 2, 9, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 0, 0], [0] * 8])
    before = net(x)
    net.embedding.weight.data[0] = 100.0
    torch.testing.assert_close(net(x), before, atol=0, rtol=0)
    net(x).square().sum().backward()
    gradient = net.embedding.weight.grad
    assert gradient[0].abs().max() == 0 and gradient[2].abs().max() > 0


def test_fasttext_takes_the_mean_of_the_tokens_that_are_there():
    """W₂(W₁ · mean + b₁) + b₂ by hand, however far the text is padded; an empty text has the mean zero."""
    net = build("fasttext", 3, (11, 8)).double()
    mean = net.embedding.weight[[5, 2, 2]].mean(0)
    by_hand = (mean @ net.fc1.weight.T + net.fc1.bias) @ net.fc.weight.T + net.fc.bias
    for length in (3, 8):
        x = torch.tensor([[5, 2, 2] + [0] * (length - 3)])
        torch.testing.assert_close(net(x)[0], by_hand)
    torch.testing.assert_close(net(torch.zeros(1, 8, dtype=torch.int64))[0], net.fc(net.fc1.bias))


def test_textcnn_is_convolutions_relu_and_the_maximum():
    """As PFLlib writes it: max-pooling behind ReLU over all positions, for kernels 3, 4 and 5 of 100 channels."""
    net = build("textcnn", 3, (11, 8)).double()
    x = torch.randint(1, 11, (2, 8), generator=generator())
    vectors = net.embedding.weight[x].permute(0, 2, 1)
    found = []
    for kernel, conv in zip((3, 4, 5), (net.conv1, net.conv2, net.conv3), strict=True):
        assert conv.weight.shape == (100, 32, kernel)
        answers = torch.relu(nn.functional.conv1d(vectors, conv.weight, conv.bias))
        found.append(nn.functional.max_pool1d(answers, 8 - kernel + 1).squeeze(2))
    torch.testing.assert_close(net(x), net.fc(torch.cat(found, 1)))


@pytest.mark.parametrize("name", ["lstm-small", "fasttext", "textcnn"])
def test_tokens_may_be_stored_small_but_not_as_real_numbers(name):
    net = build(name, 3, (11, 6))
    x = torch.randint(11, (2, 6), generator=generator())
    assert all(torch.equal(net(x), net(x.to(kind))) for kind in (torch.uint8, torch.int16, torch.int32))
    with pytest.raises(NotTokens, match=r"integer tensor \[n, length\]; this one is torch.float32"):
        net(x.float())


def test_shortest_texts():
    assert build("textcnn", 3, (11, 5))(torch.ones(1, 5, dtype=torch.int64)).shape == (1, 3)
    assert build("fasttext", 3, (11, 1))(torch.ones(1, 1, dtype=torch.int64)).shape == (1, 3)
    with pytest.raises(InputTooSmall):
        build("textcnn", 3, (11, 4))
