"""Examples on their way in: changed at random, if they are to be, and laid out for the first layer."""

from fedcohort.data.augment import LUMA
from fedcohort.engines.vector.language import Array, Code, Value
from fedcohort.engines.vector.layout import Image


def place(
    code: Code, image: Image, example: Array, pixels: Array, planes: Array | None, mirrored: Value | None
) -> None:
    """From channel by channel to pixel by pixel inside a margin; with a margin also into ``planes``, if
    given."""
    area, row = image.height * image.width, image.row // image.channels
    plane, corner = image.size // image.channels, image.margin[0] * row + image.margin[1]
    with code.loop(image.height) as y, code.loop(image.width) as x:
        at = x if mirrored is None else mirrored.choose(code.value(image.width - 1) - x, x)
        for channel in range(image.channels):
            number = example[y * image.width + at + channel * area]
            pixels[y * image.row + x * image.channels + (image.first + channel)] = number
            if planes is not None:
                planes[y * row + x + (corner + channel * plane)] = number


def change(code: Code, image: Image, example: Array, changed: Array, looks: Array, colours: Array) -> None:
    """What :class:`~fedcohort.data.augment.Augment` does, but for mirroring: brightness, contrast, colour,
    grey. ``colours`` are the channels' means, then their deviations."""
    area, channels, lanes = image.height * image.width, range(image.channels), code.lanes
    means, deviations = (
        [colours[kind * len(channels) + c].spread(lanes) for c in channels] for kind in (0, 1)
    )
    brightness, contrast, saturation, is_grey = (looks[each] for each in range(4))
    one, total = code.value(1.0), code.register(code.zeros())

    def within(value: Value) -> Value:
        value = (value < 0.0).choose(0.0, value)
        return (value > 1.0).choose(1.0, value)

    def grey(values: list[Value]) -> Value:
        parts = [value * seen for value, seen in zip(values, LUMA[len(values)], strict=True)]
        return sum(parts[1:], parts[0])

    with code.loop(area, lanes) as at:
        given = [example.vector(at + c * area) * deviations[c] + means[c] for c in channels]
        bright = [within(value * brightness) for value in given]
        for c in channels:
            changed[at + c * area] = bright[c]
        total.add(grey(bright))
    middle = total.get().total() / float(area) * (one - contrast)
    with code.loop(area, lanes) as at:
        values = [within(changed.vector(at + c * area) * contrast + middle) for c in channels]
        plain = grey(values) * (one - saturation)
        values = [within(value * saturation + plain) for value in values]
        plain = grey(values)
        for c in channels:
            shown = (is_grey > 0.5).choose(plain, values[c])
            changed[at + c * area] = (shown - means[c]) / deviations[c]
