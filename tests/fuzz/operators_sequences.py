"""Of sequences and batches: attention over many places, bags of embeddings, losses, distances, sums of products by name, spectra,
statistics."""

from __future__ import annotations

import torch
from draw import Draw, Entry, NoFit, Value


def long_attention(draw: Draw) -> tuple[str, list[Value]]:
    """Of 65,536 scores and more, over keys of another number, with masks and heads that share keys."""
    value = draw.any(lambda t: t.is_floating_point() and t.dim() >= 2 and 1 <= t.shape[-1] <= 17 and t.numel() >= 16)
    heads, rows, keys = draw.choice([1, 2, 4]), draw.choice([64, 128, 257]), draw.choice([64, 256, 300])
    width = draw.choice([8, 16])

    def sequence(count: int, of_heads: int, turn: float) -> str:
        elements = of_heads * count * width
        waves = f"torch.linspace({turn}, {40 + turn}, {elements}, dtype=torch.float64).sin().to({{0}}.dtype)"
        own = f"{{0}}.reshape(-1)[:{width}].clamp(-3, 3)" if value.tensor.numel() >= width and not draw.dynamic else "1"
        return f"{waves}.reshape(1, {of_heads}, {count}, {width}) * {own}"

    shared = draw.choice([n for n in (1, heads) if heads % n == 0]) if draw.often(0.3) else heads
    at, of = f"torch.arange({rows})[:, None]", f"torch.arange({keys})"
    kind = draw.choice(["", "causal", "padding", "band", "bias", "of each head"])
    mask = {
        "causal": ", is_causal=True",
        "padding": f", attn_mask=({of} < {draw.choice([0, 5, keys - 3])})[None]",
        "band": f", attn_mask=({at} - {of}).abs() < {draw.choice([1, 40])}",
        "bias": f", attn_mask=(({at} - {of}).abs() * -0.05).to({{0}}.dtype)",
        "of each head": f", attn_mask=torch.linspace(-1, 1, {heads})[:, None, None].to({{0}}.dtype) * (({at} + {of}) % 7)",
    }.get(kind, "")
    if shared != heads:
        mask += ", enable_gqa=True"
    scale = ", scale=0.5" if draw.often(0.2) else ""
    called = f"F.scaled_dot_product_attention({sequence(rows, heads, 0.0)}, {sequence(keys, shared, 1.5)}, "
    called += f"{sequence(keys, shared, 0.7)}{mask}{scale})"
    return called + draw.choice(["[:, :, ::9]", ".mean(-2)", "[..., -1, :]"]), [value]


def cross_attention(draw: Draw) -> tuple[str, list[Value]]:
    """Queries and keys of other numbers, values of another width."""
    query = draw.floating(3, 4)
    shape = query.tensor.shape
    key = draw.any(
        lambda t: (
            t.dtype == query.tensor.dtype and t.shape[:-2] == shape[:-2] and t.dim() > 2 and t.shape[-1] == shape[-1]
        )
    )
    text = draw.choice(["{1}", "{1}[..., :1]", "{1}.sigmoid()"])
    causal = ", is_causal=True" if draw.often(0.3) else ""
    return f"F.scaled_dot_product_attention({{0}}, {{1}}, {text}{causal})", [query, key]


def embedding_bag(draw: Draw) -> tuple[str, list[Value]]:
    table = draw.any(lambda t: t.is_floating_point() and t.dim() == 2 and min(t.shape) > 0)
    fits = lambda t: t.dtype in (torch.int64, torch.int32) and t.dim() == 2 and 0 < t.numel() <= 128  # noqa: E731
    index = [draw.any(fits)] if any(fits(value.tensor) for value in draw.values) else []
    source = (
        "{1}" if index else f"torch.arange(12).reshape({draw.choice(['3, 4', '2, 6', '12, 1'])}) * {draw.int(1, 5)}"
    )
    rows = f"({source} % {draw.size(table, 0)})"
    mode = draw.choice(["sum", "mean", "max"])
    kinds = [
        f"F.embedding_bag({rows}, {{0}}, mode='{mode}')",
        f"F.embedding_bag({rows}.reshape(-1).long(), {{0}}, torch.tensor([0, 1, 1], dtype=torch.int64), mode='{mode}')",
        f"F.embedding_bag({rows}, {{0}}, mode='{mode}', padding_idx=0)",
        f"F.embedding({rows}, {{0}}, padding_idx=0)",
        f"F.embedding({rows}, {{0}}).sum(1)",
        f"F.one_hot({rows}.long(), 70)",
    ]
    return draw.choice(kinds), [table, *index]


def loss_of_classes(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(2, 4)
    shape = value.tensor.shape
    classes, count = shape[1], value.tensor.numel() // max(shape[1], 1)
    if not 1 <= classes <= 64 or not count:
        raise NoFit
    sizes = ", ".join(draw.size(value, dim) for dim in range(len(shape)) if dim != 1)
    target = f"(torch.arange({{0}}.numel() // {{0}}.shape[1]) * 7 % {{0}}.shape[1]).reshape({sizes})"
    reduction = f"reduction='{draw.choice(['mean', 'sum', 'none'])}'"
    weight = f"weight=torch.linspace(0.5, 1.5, {draw.size(value, 1)}).to({{0}}.dtype)"
    kinds = [
        f"F.cross_entropy({{0}}, {target}, {reduction})",
        f"F.cross_entropy({{0}}, {target}, {weight}, {reduction}, ignore_index=0)",
        f"F.cross_entropy({{0}}, {target}, {reduction}, label_smoothing=0.1)",
        f"F.cross_entropy({{0}}, {{0}}.detach().softmax(1), {reduction})",
        f"F.nll_loss(F.log_softmax({{0}}, 1), {target}, {reduction})",
    ]
    if len(shape) == 2:
        kinds.append(f"F.multi_margin_loss({{0}}, {target}, {reduction})")
    return draw.choice(kinds), [value]


def loss_of_two(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(1)
    other = draw.like(value)
    reduction = f"reduction='{draw.choice(['mean', 'sum', 'none'])}'"
    names = "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss".split()
    kinds = [f"F.{name}({{0}}, {{1}}, {reduction})" for name in names]
    # Half of the other: of the same value a last bit is left of the divergence.
    kinds += [
        f"F.smooth_l1_loss({{0}}, {{1}}, {reduction}, beta=0.3)",
        f"F.huber_loss({{0}}, {{1}}, {reduction}, delta=0.5)",
        f"F.binary_cross_entropy_with_logits({{0}}, {{1}}.sigmoid(), {reduction})",
        f"F.binary_cross_entropy({{0}}.sigmoid(), {{1}}.sigmoid(), {reduction})",
        f"F.kl_div({{0}}.log_softmax(-1), ({{1}} * 0.5).softmax(-1), {reduction})",
        f"F.kl_div({{0}}.log_softmax(-1), ({{1}} * 0.5).log_softmax(-1), {reduction}, log_target=True)",
        f"F.poisson_nll_loss({{0}}.clamp(-5, 5), {{1}}.abs(), {reduction})",
        f"F.gaussian_nll_loss({{0}}, {{1}}, {{1}}.abs() + 0.1, {reduction})",
        f"F.margin_ranking_loss({{0}}, {{1}}, {{0}}.detach().sign(), margin=0.2, {reduction})",
    ]
    if value.tensor.dim() >= 2:
        kinds += [
            f"F.cosine_similarity({{0}}, {{1}}, {draw.dim(value)})",
            "F.pairwise_distance({0}, {1})",
            f"F.triplet_margin_loss({{0}}, {{1}}, {{0}} + {{1}}, {reduction})",
        ]
    return draw.choice(kinds), [value, other]


def distance(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dtype in (torch.float32, torch.float64) and 2 <= t.dim() <= 3)
    other = draw.like(value)
    kinds = ["torch.cdist({0}, {1})", "torch.cdist({0}, {1}, p=1.0)"]
    # Of a row and itself a product leaves the root of a last bit.
    kinds.append("torch.cdist({0}, {1} * 0.5, compute_mode='use_mm_for_euclid_dist')")
    if value.tensor.dim() == 2:
        kinds.append("F.pdist({0})")
    return draw.choice(kinds), [value, other]


EQUATIONS = {
    (2, 2): "ij,ij->i ij,kj->ik ij,ik->jk ij,kl->ijkl ij,ij-> ij,kj->".split(),
    (3, 3): "bij,bkj->bki bij,bij->bj bij,bik->bjk bij,bkj->ik bij,bij->b bij,cij->bc".split(),
    (4, 4): "bhid,bhjd->bhij bhid,bhjd->ij bihd,bjhd->bhij bhij,bhij->hi abcd,abcd->da".split(),
}
OF_ONE = {
    2: "ij->ji ij->j ij->".split(),
    3: "bij->ijb bij->ib bij->i".split(),
    4: "abcd->dbac abcd->bd abcd->ca".split(),
}


def sum_of_products(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.any(lambda t: t.dtype != torch.bool and 2 <= t.dim() <= 4 and t.numel() <= 1024)
    rank = value.tensor.dim()
    if draw.often(0.2):
        return f"torch.einsum('{draw.choice(OF_ONE[rank])}', {{0}})", [value]
    other = draw.like(value)
    kinds = [f"torch.einsum('{draw.choice(EQUATIONS[rank, rank])}', {{0}}, {{1}})"] * 4
    kinds += ["torch.tensordot({0}, {1}, dims=([-1], [-1]))", "torch.inner({0}, {1})"]
    if rank == 2:
        kinds += ["torch.einsum('ij,kj,lj->ikl', {0}, {1}[:3], {0}[:2])", "torch.kron({0}[:4], {1}[:3])"]
        kinds += ["F.bilinear({0}, {1}, {0}.reshape(-1)[:1].expand(2, {0}.shape[1], {1}.shape[1]))", "torch.trace({0})"]
        kinds += ["torch.linalg.multi_dot([{0}, {1}.t(), {0}])", "torch.addmv({0}[:, 0], {0}, {1}[0])"]
    if rank == 3:
        kinds += ["torch.baddbmm({0}[:, :, :1], {0}, {1}.mT, beta=0.5, alpha=2)", "torch.bmm({0}.mT, {1})"]
    return draw.choice(kinds), [value, other]


def spectrum(draw: Draw) -> tuple[str, list[Value]]:
    """Each of a real value, as is what comes of it."""
    value = draw.any(lambda t: t.dtype in (torch.float32, torch.float64) and 1 <= t.dim() <= 4 and t.numel() > 0)
    dim = draw.dim(value)
    norm = draw.choice(["", ", norm='ortho'", ", norm='forward'"])
    kinds = [
        f"torch.fft.rfft({{0}}, dim={dim}{norm}).abs()",
        f"torch.fft.fft({{0}}, dim={dim}{norm}).imag",
        f"torch.fft.irfft(torch.fft.rfft({{0}}, dim={dim}) * 0.5, n={draw.size(value, dim)}, dim={dim})",
        f"torch.view_as_real(torch.fft.ifft({{0}}, dim={dim}{norm}))",
        f"torch.fft.hfft({{0}}.to(torch.complex64), dim={dim})",
        f"torch.fft.fftshift({{0}}, {dim})",
        "torch.view_as_real(torch.polar({0}.abs(), {0}.tanh()))",
        "(torch.complex({0}, {0} + 1) * torch.complex({0}, -{0})).real",
        "torch.complex({0}, 1 - {0}).abs()",
        "(torch.complex({0}, {0}.sin()) / (torch.complex({0}, {0}).abs() + 1)).imag",
    ]
    if value.tensor.dim() >= 2:
        kinds += ["torch.fft.fft2({0}).real", "torch.fft.irfft2(torch.fft.rfft2({0}))", "torch.fft.fftn({0}).imag"]
    return draw.choice(kinds), [value]


def statistic(draw: Draw) -> tuple[str, list[Value]]:
    value = draw.floating(1)
    dim = draw.dim(value)
    keep = draw.choice(["True", "False"])
    kinds = [
        f"{{0}}.nanmean({dim}, keepdim={keep})",
        f"{{0}}.nanmedian({dim})[0]",
        f"torch.trapezoid({{0}}, dim={dim})",
        f"torch.cumulative_trapezoid({{0}}, dim={dim})",
        f"{{0}}.renorm(2, {dim}, 0.5)",
        f"torch.gradient({{0}}, dim={dim})[0]",
        "torch.searchsorted(torch.linspace(-2, 2, 9).to({0}.dtype), {0}.contiguous())",
        "torch.bucketize({0}.detach(), torch.linspace(-2, 2, 9).to({0}.dtype), right=True)",
        "F.local_response_norm({0}.unsqueeze(0).unsqueeze(0), 3)",
        f"F.gumbel_softmax({{0}}, hard=True, dim={dim}).sum({dim})",
        f"torch.linalg.norm({{0}}, dim={dim})",
    ]
    if value.tensor.dtype in (torch.float32, torch.float64):
        kinds.append(
            f"torch.quantile({{0}}, {draw.choice(['0.5', '0.3', 'torch.tensor([0.1, 0.9]).to({0}.dtype)'])}, {dim})"
        )
    return draw.choice(kinds), [value]


SEQUENCES: list[tuple[float, Entry]] = [
    (2, long_attention),
    (1.5, cross_attention),
    (1.5, embedding_bag),
    (2, loss_of_classes),
    (2.5, loss_of_two),
    (1, distance),
    (3, sum_of_products),
    (2.5, spectrum),
    (2, statistic),
]
