"""The torch.compile backend: Dynamo's graph goes through AOTAutograd, each functional graph to the compiled part.

Thin on purpose: everything that is a decision about the generated code is taken in C++.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NoReturn

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback

from zefuse import _native, tuning
from zefuse.decompositions import (
    eager_strides,
    elementwise_strides,
    optimizers,
    packed_sequences,
    quantized_graphs,
    recurrent,
    spectra_strides,
    without_kernels,
)
from zefuse.errors import (
    DeadlineError,
    DeviceError,
    FallbackError,
    NotFoundError,
    OptionError,
    UnsupportedError,
    ZefuseError,
)
from zefuse.explaining import torch_logs
from zefuse.graphs import (
    common_subexpressions,
    complex_pairs,
    constants,
    direct_calls,
    gapped_windows,
    garbage,
    half_spectra,
    input_bases,
    input_names,
    later,
    observers,
    output_aliases,
    partitioning,
    places,
    replayed_views,
    saved_block,
    saved_strides,
    seeds,
    spectra_layouts,
    tangent_strides,
    unread_arguments,
    unread_logs,
    zero_tensors,
)
from zefuse.graphs.for_target import NOT_KEPT, PlanOnly
from zefuse.graphs.observers import observe as observe  # where users of the backend look for it
from zefuse.graphs.storage_views import OutsideOfInput, StorageViews, own_bits, refused_write
from zefuse.installing import torch_versions
from zefuse.options import Options

recurrent.let_dynamo_take_layers()
packed_sequences.let_dynamo_take_modules()
optimizers.let_dynamo_trace_steps()
torch_versions.norms_leave_out_dimensions()
torch_versions.lstm_states_have_two_dimensions()
torch_versions.views_stride_ones_as_eager()
torch_versions.subclasses_are_taken_apart_as_traced()
spectra_strides.let_rules_take_dimensions_in_any_order()
elementwise_strides.let_shape_rules_follow_eager()

# Graphs that may hold derived weights. Weak: a graph lives as long as the code that calls it.
_live: weakref.WeakSet[Any] = weakref.WeakSet()


def zefuse(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | Options | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="zefuse", options={...})`` calls with a Dynamo graph."""
    if (told := observers.dynamo_graphs.get()) is not None:
        told(gm)
    try:
        if mode not in (None, "default"):
            raise OptionError(
                f'torch.compile(mode={mode!r}): zefuse has no modes; leave it out, use options={{"..."}} instead'
            )
        checked = Options.make(options)
        views = StorageViews(gm, example_inputs)
        reason = views.why_eager() or gapped_windows.why_eager(gm) or recurrent.why_eager(gm)
        if reason is None:
            try:
                return views.guard(_through_aot_autograd(gm, example_inputs, checked, views))
            except OutsideOfInput as error:
                reason = str(error)
            except (RuntimeError, AssertionError) as error:
                if isinstance(error, ZefuseError) or (reason := refused_write(error, gm)) is None:
                    raise
        if checked.strict:
            raise FallbackError(f"zefuse: a graph runs in eager: {reason}")
        warnings.warn(f"zefuse: a graph runs in eager: {reason}", stacklevel=2)
        return gm
    except ZefuseError as error:
        _pass_through_dynamo(error)


def _through_aot_autograd(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Options, views: StorageViews
) -> Callable[..., Any]:
    from zefuse.decompositions.table import decompositions

    watch = direct_calls.Watch()
    names = input_names.of_dynamo(gm)
    on_gpu = options.device != "cpu" or places.any_placed(example_inputs)
    beside = places.any_placed(example_inputs) and later.may_begin(example_inputs)
    compile_through = aot_autograd(
        fw_compiler=partial(_compile, "forward", options, names, views=views, watch=watch),
        bw_compiler=partial(_begin_backward if beside else partial(_compile, "backward"), options, names),
        inference_compiler=partial(_compile, "inference", options, names, views=views, watch=watch),
        decompositions=decompositions(random_in_kernels=not options.fallback_random),
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    with (
        torch_versions.linear_algebra_checks_kept(),
        without_kernels.also_before_autograd(),
        eager_strides.as_noted_for_subclasses(gm, example_inputs),
        garbage.no_full_collections(),
        unread_logs.not_printed(),
        seeds.unread_draws_kept(options.fallback_random or not on_gpu),
        _tracing(example_inputs),
        later.backward_follows_forward(beside),
    ):
        input_bases.have_dynamos_symbols(gm, example_inputs)
        whole = recurrent.kept_whole(gm, on_gpu=on_gpu)
        taken = whole if on_gpu else quantized_graphs.taken(whole, example_inputs)
        return watch.instead_of(compile_through(taken, example_inputs), example_inputs)


def _tracing(example_inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """Where AOTAutograd tells what it takes inputs and outputs for. Dynamo brings it; a caller with a graph of its own does not."""
    if torch._guards.TracingContext.try_get() is not None:
        return nullcontext()
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake_mode = torch._guards.detect_fake_mode(list(example_inputs)) or FakeTensorMode()
    return torch._guards.tracing(torch._guards.TracingContext(fake_mode))


def compile_graph(
    gm: torch.fx.GraphModule,
    parameter_indices: Sequence[int],
    options: Options,
    kind: str = "inference",
    *,
    whole: bool = False,
) -> Any:
    """One functional ATen graph (``meta["val"]`` on every node) to a callable that takes a list and gives a list.

    What no plan can hold runs in eager between compiled parts, unless ``whole`` or ``options.strict`` makes that an error.
    """
    return _prepared(gm, parameter_indices, options, kind, whole=whole)()


def _prepared(
    gm: torch.fx.GraphModule,
    parameter_indices: Sequence[int],
    options: Options,
    kind: str,
    *,
    whole: bool = False,
    begin: bool = False,
) -> Callable[[], Any]:
    """``compile_graph`` in two: what is returned does the rest. ``begin``: most of that is begun at once, on a thread, where it can
    be; what goes wrong there is told by the rest."""
    if kind != "inference":
        options = dataclasses.replace(options, kept_weights=False)
    replays = kind != "backward" and not whole and observers.recorder.get() is None
    replay = replayed_views.foreseen(gm, kind) if replays else None
    gm = gm if replay is None else replay.graph
    zero_tensors.fill(gm)
    constants.fold(gm)
    own_bits(gm)
    half_spectra.halve(gm)
    spectra_layouts.arrange(gm)
    place = places.of_graph(gm)
    seeded, draws = seeds.taken(gm, place)
    if draws and whole:
        raise UnsupportedError(f"zefuse: the graph is not one plan: it draws from torch's generator of {place}")
    pairs = complex_pairs.rewritten(seeded)
    if pairs is not None and whole and pairs.changes_ends:
        pairs = None
    graph = seeded if pairs is None else pairs.graph
    begun = _begun(graph, parameter_indices, options) if begin else None

    def rest() -> Any:
        compiled = _compile_in_parts(graph, parameter_indices, options, whole, begun)
        if pairs is not None and pairs.changes_ends:
            compiled = complex_pairs.ComplexEnds(compiled, pairs)
        if replay is not None:
            compiled = replayed_views.Replayed(compiled, replay)
        elif replays and replayed_views.lie_apart(graph, kind, compiled):
            again = replayed_views.taken(graph, kind)
            if again is not None:
                compiled = _compile_in_parts(again.graph, parameter_indices, options, whole)
                compiled = replayed_views.Replayed(compiled, again)
        if draws and place is not None:
            compiled = seeds.Seeded(compiled, draws, place)
        torch_logs.tell(kind, compiled, gm)
        adopt(compiled, kind)
        return compiled

    return rest


def adopt(compiled: Any, kind: str) -> None:
    """Called for each graph of this process, also where its plan was loaded."""
    _forget_weights_after_optimizer_steps()
    _live.add(compiled)
    if (observer := observers.compiled_graphs.get()) is not None:
        observer(kind, compiled)


def _begun(gm: torch.fx.GraphModule, parameter_indices: Sequence[int], options: Options) -> Any | None:
    """The native Compiling of the first thing that ``_compile_in_parts`` tries. None: something else comes first, or it fails."""
    from zefuse.graphs import parts

    place = places.of_graph(gm)
    if parts.outside(gm, place) or parts.passes_on(gm, place):
        return None
    settings = options.to_dict() | places.settings(place)
    if not options.kept_weights:
        gm.meta[NOT_KEPT] = True
    try:
        return _native.load().begin(gm, list(parameter_indices), tuning.applied(settings))
    except ZefuseError:
        return None


def _compile_in_parts(
    gm: torch.fx.GraphModule, parameter_indices: Sequence[int], options: Options, whole: bool, begun: Any | None = None
) -> Any:
    """``begun``: of ``_begun`` with the same arguments, or None."""
    from zefuse.graphs import parts

    native = _native.load()
    place = places.of_graph(gm)
    settings = options.to_dict() | places.settings(place)

    def compile_part(part: torch.fx.GraphModule, parameters: list[int]) -> Any:
        nonlocal begun
        if not options.kept_weights:
            part.meta[NOT_KEPT] = True
        first, begun = begun, None
        try:
            taken = None if first is None else first.take()
            compiled = taken or native.compile(part, parameters, tuning.applied(settings))
        except (NotFoundError, DeadlineError, DeviceError) as error:
            if place is not None or (other := options.or_cpu()) is None:
                raise
            warnings.warn(f"zefuse: a graph runs on the CPU: {error}", stacklevel=2)
            compiled = native.compile(part, parameters, tuning.applied(other.to_dict()))
        if (captured := observers.captured_graphs.get()) is not None:
            captured(part, parameters)
        if compiled.package_miss:
            warnings.warn(f"zefuse: a graph is compiled: {compiled.package_miss}", stacklevel=2)
        if place is not None:
            parts.refuse_host_steps(compiled, part)
        elif names := options.target_names():
            _fill_cache(part, parameters, compiled, names, options)
        return compiled

    reasons = parts.outside(gm, place)
    if reasons:
        reasons |= parts.writes(gm)
    while True:
        if reasons and (whole or options.strict):
            node, reason = next(iter(reasons.items()))
            kind = UnsupportedError if whole else FallbackError
            raise kind(f"zefuse: the graph is not one plan: {reason}{parts.line_of(node)}")
        try:
            if not reasons and not (parts.passes_on(gm, place) and not whole):
                return compile_part(gm, list(parameter_indices))
            return parts.Parts(gm, parameter_indices, reasons, compile_part)
        except UnsupportedError as error:
            # A node that the importer refuses goes outside as well; an error that names none makes the whole graph eager.
            if whole or options.strict:
                raise
            reason = str(error).splitlines()[0]
            nodes = [node for node in parts.named_in(error, gm) if node.op == "call_function" and node not in reasons]
            if not nodes:
                warnings.warn(f"zefuse: a graph runs in eager: {reason}", stacklevel=2)
                reasons = {node: reason for node in gm.graph.nodes if node.op == "call_function"}
            else:
                reasons |= dict.fromkeys(nodes, reason)
                reasons |= parts.writes(gm)


def _fill_cache(
    part: torch.fx.GraphModule, parameters: list[int], compiled: Any, names: Sequence[str], options: Options
) -> None:
    """Plans and native code for other targets into the cache, ahead of need. What this process needs is there already, so a
    failure is a warning."""
    from zefuse import targets

    native = _native.load()
    levels, products = targets.resolve(names)
    host_code = levels or list(targets.CPU)

    def fill(name: str, codes: Sequence[str], plan: Callable[[], bytes]) -> None:
        try:
            native.package_natives(plan(), list(codes), options.to_dict(), None)
        except ZefuseError as error:  # what compiles for the others is no worse for it
            warnings.warn(f"zefuse: the cache is not filled for {name}: {error}", stacklevel=2)

    if levels and options.device == "cpu":
        fill(", ".join(levels), levels, compiled.plan_bytes)
    for product in products:
        # Made inside fill: a refusal there is a warning, and the other products have their turn.
        fill(product, [product, *host_code], partial(_plan_for, part, parameters, options, product))


def _plan_for(part: torch.fx.GraphModule, parameters: list[int], options: Options, product: str) -> bytes:
    return PlanOnly(part, parameters, options, product).plan_bytes()


def _compile(
    kind: str,
    options: Options,
    names: Sequence[str],
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    views: StorageViews | None = None,
    watch: direct_calls.Watch | None = None,
) -> Callable[..., Any]:
    input_names.note(gm, names)
    if views is not None:
        views.look(gm)
    if (recorder := observers.recorder.get()) is not None:
        return recorder(kind, compile_graph(gm, _parameter_indices(kind), options, kind), gm)
    if kind == "backward":
        return _boxed_function(_compile_backward(options, gm, example_inputs))
    output_aliases.note(gm)
    if kind == "forward":
        saved_strides.free(gm)
        tangent_strides.compare_places()
    compiled = compile_graph(gm, _parameter_indices(kind), options, kind)
    if watch is not None:
        watch.saw(kind, compiled, gm)
    if kind == "forward":
        saved_strides.report(gm, compiled)
        saved_block.join(gm, compiled)
        return output_aliases.apart(output_aliases.by_views(gm, kind, compiled))
    # A compiled graph is boxed itself (it empties the list it is called with): a wrapper here would cost each call.
    return output_aliases.apart(output_aliases.by_views(gm, kind, compiled))


def _begin_backward(
    options: Options, names: Sequence[str], gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    """As ``_compile``, beside what comes before the first call, which does the rest."""
    input_names.note(gm, names)
    later.overwrites_nothing()
    try:
        rest = _prepared_backward(options, gm, example_inputs, begin=True)
    except Exception:  # told where it would have been without this
        rest = partial(_compile_backward, options, gm, example_inputs)
    return later.at_first_call(rest)


def _compile_backward(
    options: Options, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    return _prepared_backward(options, gm, example_inputs)()


def _prepared_backward(
    options: Options, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, begin: bool = False
) -> Callable[[], Callable[[list[Any]], Any]]:
    copy = None
    if not saved_strides.take(gm, example_inputs):
        copy = saved_strides.as_traced(gm)
        saved_strides.forget(gm)
    rest = _prepared(gm, (), options, "backward", begin=begin)

    def finished() -> Callable[[list[Any]], Any]:
        compiled = rest()
        if copy is None:
            return saved_block.taken(gm, compiled)

        def run(args: list[Any]) -> Any:
            copy(args)
            return compiled(args)

        return saved_block.taken(gm, run)

    return finished


def _boxed_function(compiled: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Dynamo wraps a backward, and finds the mark on functions only."""

    def run(args: list[Any]) -> Any:
        return compiled(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _parameter_indices(kind: str) -> Sequence[int]:
    """Inputs that are parameters or buffers of modules, whose derived forms may be kept.

    A backward graph has none: it runs once per training step, after which every weight has changed.
    """
    context = torch._guards.TracingContext.try_get()
    if kind == "backward" or context is None or context.fw_metadata is None:
        return ()
    return context.fw_metadata.static_input_indices


def _partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    unread_arguments.forget(joint.graph)
    seeds.merge(joint.graph)
    partitioning.know_whole_gradients()
    ours = config.cse and common_subexpressions.can_merge(joint.graph)
    if ours:
        joint.graph.eliminate_dead_code()
        common_subexpressions.merge(joint.graph)
    with config.patch(cse=config.cse and not ours):
        forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
    saved_block.link(forward, backward)
    return forward, backward


def synchronize() -> None:
    """Waits for what compiled functions of all threads have queued on GPUs of torch's, and raises the first error of theirs that
    was not told yet: a check of a kernel that failed, such as an index out of range (IndexOutOfRangeError, an IndexError). The
    message names the kernel. Without such a GPU there is nothing to wait for."""
    first: ZefuseError | None = None
    for compiled in list(_live):
        try:
            compiled.synchronize()
        except ZefuseError as error:
            first = first or error
    if first is not None:
        raise first


def invalidate_weights() -> None:
    """Forgets all that compiled functions keep of parameters (in a library's layout, folded, cast, on a GPU): their next calls make it
    anew. For who writes to a parameter past its version counter (``.data``, NumPy, a kernel of one's own); an optimizer's step does
    it by itself."""
    for compiled in list(_live):
        compiled.invalidate_weights()


@cache
def _forget_weights_after_optimizer_steps() -> None:
    """Fused optimizers change weights without a new version number: after any optimizer's step nothing derived is kept."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: invalidate_weights())


def _pass_through_dynamo(error: ZefuseError) -> NoReturn:
    """Dynamo wraps a backend's exception, so that its first line says nothing, unless it is of Dynamo's own base class."""
    kind = type(error)
    passing = type(kind.__name__, (ShortenTraceback, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    raise passing(*error.args, first_useful_frame=None).with_traceback(error.__traceback__) from error.__cause__
