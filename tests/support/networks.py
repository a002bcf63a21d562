"""Networks that experiments of tests name."""

from torch import nn


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """BatchNorm after a convolution and after a dense layer, as in cifar_cnn, which takes its time."""
    seen = nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten()
    wide = 4 * (shape[1] // 4) * (shape[2] // 4)
    return nn.Sequential(*seen, nn.Linear(wide, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))
