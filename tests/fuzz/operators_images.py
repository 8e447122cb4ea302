"""Of images, volumes and signals: convolutions of every rank with all their options, pools, resampling, folds."""

from __future__ import annotations

from draw import Draw, Entry, NoFit, Value
from operators_layers import constant_or_cut


def _of_rank(draw: Draw, rank: int) -> tuple[str, Value]:
    """The text of a value with two dimensions and ``rank`` more, of few channels, and the value."""
    value = draw.any(
        lambda t: t.is_floating_point() and rank + 1 <= t.dim() <= rank + 2 and t.numel() > 0 and t.shape[1] <= 9
    )
    return ("{0}.unsqueeze(2)" if value.tensor.dim() == rank + 1 else "{0}"), value


def convolution_with_options(draw: Draw) -> tuple[str, list[Value]]:
    """Groups of several channels, other sizes in each dimension, padding to the same size."""
    rank = draw.choice([1, 1, 2, 2, 3, 3])
    text, value = _of_rank(draw, rank)
    channels = value.tensor.shape[1]
    groups = draw.choice([n for n in (1, 1, 2, 3, channels) if channels % n == 0])
    out = groups * draw.int(1, 3)
    sizes = [draw.int(1, 3) for _ in range(rank)]
    weight, of = constant_or_cut(draw, value, f"{out}, {channels // groups}, {', '.join(map(str, sizes))}", 1)
    bias = f", torch.linspace(-1, 1, {out}).to({{0}}.dtype)" if draw.often(0.5) else ", None"
    each = lambda low, high: f"({''.join(f'{draw.int(low, high)}, ' for _ in range(rank))})"  # noqa: E731
    stride, padding = each(1, 2), each(0, 2)
    if draw.often(0.2):
        stride, padding = "1", draw.choice(["'same'", "'valid'"])
    more = f"stride={stride}, padding={padding}, dilation={each(1, 2)}, groups={groups}"
    return f"F.conv{rank}d({text}, {weight}{bias}, {more})", [value, *of]


def transposed_convolution(draw: Draw) -> tuple[str, list[Value]]:
    rank = draw.choice([1, 2, 2, 3])
    text, value = _of_rank(draw, rank)
    channels = value.tensor.shape[1]
    groups = draw.choice([n for n in (1, 1, 2, channels) if channels % n == 0])
    sizes = [draw.int(1, 3) for _ in range(rank)]
    weight, of = constant_or_cut(draw, value, f"{channels}, {draw.int(1, 3)}, {', '.join(map(str, sizes))}", 1)
    stride = draw.int(1, 3)
    more = f"stride={stride}, padding={draw.int(0, 1)}, output_padding={draw.int(0, stride - 1)}, groups={groups}"
    return f"F.conv_transpose{rank}d({text}, {weight}, {more}, dilation={draw.choice([1, 1, 2])})", [value, *of]


def wide_convolution_of_any_rank(draw: Draw) -> tuple[str, list[Value]]:
    """Of windows of 3 and many channels: of signals and volumes, of images whose width fills no tile."""
    rank = draw.choice([1, 1, 2, 3])
    text, value = _of_rank(draw, rank)
    shape = value.tensor.shape[2:] if value.tensor.dim() == rank + 2 else (1, *value.tensor.shape[2:])
    if any(size > 17 for size in shape) or value.tensor.shape[0] > 9:
        raise NoFit
    channels = value.tensor.shape[1] * (repeats := -(-32 // value.tensor.shape[1]))
    out = draw.choice([16, 32, 33])
    weight, of = constant_or_cut(draw, value, f"{out}, {channels}{', 3' * rank}", 1)
    wide = f"{text}.clamp(-3, 3).repeat(1, {repeats}{', 1' * rank})"
    if draw.often(0.3) and rank > 1:
        wide += f".to(memory_format=torch.channels_last{'_3d' if rank == 3 else ''})"
    after = draw.choice(["", ".relu()", ".mean(1)"])
    return f"F.conv{rank}d({wide}, {weight}, padding={draw.choice([0, 1, 1])}){after}", [value, *of]


def depthwise_convolution(draw: Draw) -> tuple[str, list[Value]]:
    """A filter of its own for each channel of a sequence or an image, causal too."""
    rank = draw.choice([1, 1, 2])
    text, value = _of_rank(draw, rank)
    channels = value.tensor.shape[1] * (repeats := draw.choice([1, 1, 4, 8]))
    size, dilation = draw.choice([2, 3, 4, 7]), draw.choice([1, 1, 2, 4])
    weight, of = constant_or_cut(draw, value, f"{channels}, 1{f', {size}' * rank}", 1)
    wide = text if repeats == 1 else f"{text}.repeat(1, {repeats}{', 1' * rank})"
    padding = draw.choice([0, size // 2, (size - 1) * dilation])
    if draw.often(0.3):
        wide, padding = f"F.pad({wide}, ({(size - 1) * dilation}, 0))", 0
    called = f"F.conv{rank}d({wide}, {weight}, padding={padding}, dilation={dilation}, groups={channels})"
    return called + draw.choice(["", "", ".sigmoid()", "[..., :1]"]), [value, *of]


def pool(draw: Draw) -> tuple[str, list[Value]]:
    rank = draw.choice([1, 2, 2, 3])
    text, value = _of_rank(draw, rank)
    size, stride = draw.int(2, 3), draw.int(1, 3)
    ceil = draw.choice(["", ", ceil_mode=True"])
    kinds = [
        f"F.max_pool{rank}d({text}, {size}, {stride}, padding=1{ceil})",
        f"F.max_pool{rank}d({text}, {size}, {stride}, dilation=2)",
        f"F.avg_pool{rank}d({text}, {size}, {stride}, padding=1{ceil}, count_include_pad=False)",
        f"F.adaptive_max_pool{rank}d({text}, {draw.int(1, 3)})",
        f"F.adaptive_avg_pool{rank}d({text}, {draw.int(2, 4)})",
    ]
    if rank < 3:
        kinds.append(f"F.lp_pool{rank}d({text}, 2, {size}, {stride})")
    if rank == 2:
        kinds.append(f"F.avg_pool2d({text}, {size}, {stride}, divisor_override=3)")
        kinds.append(f"F.adaptive_avg_pool2d({text}, (None, {draw.int(1, 3)}))")
    return draw.choice(kinds), [value]


def resample(draw: Draw) -> tuple[str, list[Value]]:
    rank = draw.choice([1, 2, 2, 3])
    text, value = _of_rank(draw, rank)
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[rank]
    size = f"scale_factor={draw.choice(['2', '0.5', '1.5'])}" if draw.often(0.5) else f"size={draw.int(2, 6)}"
    mode = draw.choice(["nearest", "nearest-exact", "area", *smooth, *smooth])
    more = f", align_corners={draw.choice(['True', 'False'])}" if mode in smooth else ""
    if mode in ("bilinear", "bicubic") and draw.often(0.4):
        more = ", antialias=True"
    return f"F.interpolate({text}, {size}, mode='{mode}'{more})", [value]


def grid_sample(draw: Draw) -> tuple[str, list[Value]]:
    text, value = _of_rank(draw, 2)
    if value.tensor.element_size() < 4:
        raise NoFit
    grid = "torch.linspace(-1.2, 1.1, {0}.shape[0] * 24).to({0}.dtype).reshape({0}.shape[0], 3, 4, 2)"
    if draw.often(0.4):
        angle = "torch.tensor([[0.8, -0.3, 0.1], [0.3, 0.8, 0.0]]).to({0}.dtype).expand({0}.shape[0], 2, 3)"
        grid = f"F.affine_grid({angle}, [{{0}}.shape[0], 1, 4, 3], align_corners=False)"
    modes = f"mode='{draw.choice(['bilinear', 'bilinear', 'nearest', 'bicubic'])}'"
    padding = f"padding_mode='{draw.choice(['zeros', 'border', 'reflection'])}'"
    return f"F.grid_sample({text}, {grid}, {modes}, {padding}, align_corners={draw.choice(['True', 'False'])})", [value]


def fold(draw: Draw) -> tuple[str, list[Value]]:
    text, value = _of_rank(draw, 2)
    size, stride, padding = draw.int(1, 3), draw.int(1, 2), draw.int(0, 1)
    options = f"{size}, padding={padding}, stride={stride}"
    windows = f"F.unfold({text}, {options}, dilation=1)"
    if draw.dynamic or draw.often(0.4):
        return windows, [value]
    rows = value.tensor.shape[-2] if value.tensor.dim() == 4 else 1
    return f"F.fold({windows}, ({rows}, {value.tensor.shape[-1]}), {options})", [value]


def shuffle(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dim() == 4 and t.numel() > 0)
    channels, rows, columns = value.tensor.shape[1:]
    kinds = [f"F.channel_shuffle({{0}}, {n})" for n in (2, 3) if channels % n == 0]
    kinds += ["F.pixel_shuffle({0}, 2)"] * (channels % 4 == 0)
    kinds += ["F.pixel_unshuffle({0}, 2)"] * (rows % 2 == 0 and columns % 2 == 0)
    if not kinds:
        raise NoFit
    return draw.choice(kinds), [value]


def pad_by_mode(draw: Draw) -> tuple[str, list[Value]]:
    rank = draw.choice([1, 2, 3])
    text, value = _of_rank(draw, rank)
    amounts = tuple(draw.int(0, 2) for _ in range(2 * rank))
    return f"F.pad({text}, {amounts}, mode='{draw.choice(['reflect', 'replicate', 'circular'])}')", [value]


IMAGES: list[tuple[float, Entry]] = [
    (3, convolution_with_options),
    (2, transposed_convolution),
    (3, wide_convolution_of_any_rank),
    (2.5, depthwise_convolution),
    (2, pool),
    (2, resample),
    (1, grid_sample),
    (1, fold),
    (0.7, shuffle),
    (1, pad_by_mode),
]
