#include "runtime/executor/executable.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "common/base/fork.h"
#include "common/base/number_list.h"
#include "common/plan/dtype.h"
#include "runtime/executor/frame.h"
#include "runtime/primitives/core/team_thread.h"

namespace zefuse {

using namespace executor;

namespace {

Status refuseAten(const plan::Program& program) {
  std::string ops;
  std::set<std::string> named;
  for (const auto& step : program.plan.steps)
    if (const auto* call = step->kind.AsAtenCall()) {
      const std::string op = call->op + (call->overload.empty() ? "" : "." + call->overload);
      if (named.insert(op).second)
        ops += "\n  " + op + " (" + (call->draw ? "draws from torch's generator" : call->reason) + ")";
    }
  if (ops.empty())
    return {};
  return {Code::unsupported, "the plan calls operators of ATen, which this program runs without: load the package from "
                             "Python, or compile it with --standalone, which refuses them there:" +
                                 ops};
}

// Flatbuffers wants its bytes aligned; a vector's storage is.
std::vector<std::byte> aligned(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

struct Executable::Impl {
  std::vector<std::byte> bytes;
  std::string device;
  Shared shared;

  // Bindings, most recently used first. A lookup happens only when a frame's last binding does not
  // fit.
  static constexpr size_t max_bindings = 128;
  ForkMutex bindings_mutex;
  std::list<std::shared_ptr<const Binding>> bindings;

  ~Impl() {
    frames.clear();
    // What a lost device may still use is never freed.
    if (shared.gpu && shared.gpu->device->isLost()) {
      (void)shared.gpu.release();
      shared.modules->endBuilding();  // which reads the plan
      (void)shared.modules.release();
    }
  }

  // Declared last: frames use everything above. Last in, first out, so that memory stays warm. After a burst of
  // concurrent calls only as many are kept as cores could use.
  const size_t max_idle_frames = std::max(8u, 2 * std::thread::hardware_concurrency());
  ForkMutex frames_mutex;
  std::vector<std::unique_ptr<Frame>> frames;  // with room for all that are kept: giveBack() asks for no memory

  Impl() { frames.reserve(max_idle_frames); }

  Status describeMismatch(size_t index, const CallInput& given, const Binding* binding) const;
  Status checkKinds(std::span<const CallInput> inputs) const;
  void readSymbols(std::span<const CallInput> inputs, int64_t* symbols) const;
  Status checkInputs(std::span<const CallInput> inputs, const Binding& binding) const;
  Result<std::shared_ptr<const Binding>> bindingFor(std::span<const int64_t> symbols, int threads);
  std::unique_ptr<Frame> takeFrame();
  void giveBack(std::unique_ptr<Frame>& frame) noexcept;
};

Result<std::unique_ptr<Executable>> Executable::create(std::span<const std::byte> plan,
                                                       const ExecutableOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->bytes = aligned(plan);
  Result<plan::Program> program = plan::loadProgram(impl->bytes);
  if (!program.ok())
    return program.status();
  impl->shared.program = std::move(*program);
  if (options.in_streams)
    plan::takeCallersPlaces(impl->shared.program);
  const std::string& device = impl->shared.program.plan.device;
  if ((device == "cpu") != (options.device == "cpu"))  // of GPUs any: the plan's target is checked with its kernels
    return Status{Code::invalid_argument, "the plan is compiled for device '" + device + "' and asked to run on '" +
                                              options.device + "'; compile for this device"};
  if (!options.allow_aten)
    ZEFUSE_RETURN_IF_ERROR(refuseAten(impl->shared.program));
  // Of fixed sizes, library calls are prepared while kernels are loaded, and a GPU's libraries are asked: neither needs
  // the other.
  std::optional<primitives::TeamThread<Result<std::shared_ptr<const Binding>>>> binding;
  if (impl->shared.program.plan.symbols.empty())
    binding.emplace([&impl = *impl, &options] {
      auto bound = impl.bindingFor({}, primitives::maxThreads());
      if (bound.ok() && std::ranges::any_of((*bound)->launches, &BoundLaunch::asksALibrary))
        if (auto gpu = DeviceContext::open(options.device); gpu.ok())
          askLibraries(**gpu, **bound);
      return bound;
    });
  auto modules = KernelModules::build(*plan::GetPlan(impl->bytes.data()), options, impl->shared.counters);
  if (!modules.ok())
    return modules.status();
  impl->shared.modules = std::move(*modules);
  if (const auto& gpu = impl->shared.modules->gpu())
    impl->shared.gpu = std::make_unique<SharedDevice>(gpu, std::chrono::seconds(options.device_timeout_s),
                                                      options.in_streams, options.synchronous);
  auto aten = AtenOps::resolve(impl->shared.program);
  if (!aten.ok())
    return aten.status();
  impl->shared.aten = std::move(*aten);
  if (binding) {
    auto bound = binding->get();
    if (!bound.ok())
      return bound.status();
    auto frame = std::make_unique<Frame>(impl->shared);
    ZEFUSE_RETURN_IF_ERROR(frame->bind(std::move(*bound)));
    if (!options.build_beside)
      ZEFUSE_RETURN_IF_ERROR(frame->requireKernels());
    impl->giveBack(frame);
  }
  impl->shared.modules->forgetCaller();
  return std::unique_ptr<Executable>(new Executable(std::move(impl)));
}

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;

Status Executable::Impl::describeMismatch(size_t index, const CallInput& given, const Binding* binding) const {
  const plan::InputT& input = *shared.program.plan.inputs[index];
  const bool integer = input.kind == plan::InputKind::integer, real = input.kind == plan::InputKind::real;
  const std::string where = "input " + std::to_string(index) + " '" + input.name + "': expected ";
  std::string expected = integer ? "an integer"
                         : real  ? "a real number"
                                 : std::string("a tensor of dtype ") + plan::dtypeName(input.dtype);
  std::string got = given.is_tensor ? std::string("a tensor of dtype ") + plan::dtypeName(given.tensor.dtype)
                    : given.is_real ? "a real number"
                                    : "an integer";
  if (!integer && !real) {
    if (binding)
      expected += ", sizes " + numberList(binding->inputs[index].sizes) + " and strides " +
                  numberList(binding->inputs[index].strides);
    else
      expected += " with " + std::to_string(input.sizes.size()) + " dimensions";
  }
  if (given.is_tensor)
    got += ", sizes " + numberList(given.tensor.sizes) + " and strides " + numberList(given.tensor.strides);
  return {Code::invalid_argument,
          where + expected + ", got " + got + "; pass what the model was compiled with or compile again"};
}

Status Executable::Impl::checkKinds(std::span<const CallInput> inputs) const {
  const plan::PlanT& plan = shared.program.plan;
  if (inputs.size() != plan.inputs.size())
    return {Code::invalid_argument, "the compiled function takes " + std::to_string(plan.inputs.size()) +
                                        " inputs, got " + std::to_string(inputs.size())};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const plan::InputT& input = *plan.inputs[i];
    if (input.kind == plan::InputKind::unused)
      continue;
    const CallInput& given = inputs[i];
    const bool real = input.kind == plan::InputKind::real, number = real || input.kind == plan::InputKind::integer;
    if (given.is_tensor == number || given.is_real != real ||
        (!number && (given.tensor.dtype != input.dtype || given.tensor.sizes.size() != input.sizes.size() ||
                     given.tensor.strides.size() != input.sizes.size()))) [[unlikely]]
      return describeMismatch(i, given, nullptr);
  }
  return {};
}

void Executable::Impl::readSymbols(std::span<const CallInput> inputs, int64_t* symbols) const {
  for (const auto& symbol : shared.program.plan.symbols) {
    const CallInput& input = inputs[symbol->input];
    *symbols++ = symbol->dim < 0 ? input.integer : input.tensor.sizes[size_t(symbol->dim)];
  }
}

Status Executable::Impl::checkInputs(std::span<const CallInput> inputs, const Binding& binding) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const CallInput& given = inputs[i];
    if (!given.is_tensor || shared.program.plan.inputs[i]->kind == plan::InputKind::unused)
      continue;
    const BoundInput& expected = binding.inputs[i];
    bool same = true, empty = false;
    for (size_t d = 0; d < expected.sizes.size(); ++d) {
      same &= given.tensor.sizes[d] == expected.sizes[d];
      empty |= expected.sizes[d] == 0;
    }
    // The stride of a dimension of one element, or of an empty tensor, moves nothing.
    for (size_t d = 0; d < expected.sizes.size(); ++d)
      same &= given.tensor.strides[d] == expected.strides[d] || expected.sizes[d] == 1 || empty;
    if (!same) [[unlikely]]
      return describeMismatch(i, given, &binding);
    if (!given.tensor.data && !empty) [[unlikely]]
      return {Code::invalid_argument,
              "input " + std::to_string(i) + " '" + shared.program.plan.inputs[i]->name + "' has no data"};
  }
  return {};
}

Result<std::shared_ptr<const Binding>> Executable::Impl::bindingFor(std::span<const int64_t> symbols, int threads) {
  {
    std::lock_guard lock(bindings_mutex);
    for (auto at = bindings.begin(); at != bindings.end(); ++at)
      if ((*at)->threads == threads && std::ranges::equal((*at)->symbols, symbols)) {
        bindings.splice(bindings.begin(), bindings, at);
        return bindings.front();
      }
  }
  // Outside the lock: preparing library calls takes milliseconds. Two threads may do the same;
  // either result is right.
  auto made = Binding::make(shared.program, symbols, threads);
  if (!made.ok())
    return made;
  std::lock_guard lock(bindings_mutex);
  bindings.push_front(*made);
  if (bindings.size() > max_bindings)
    bindings.pop_back();
  return made;
}

std::unique_ptr<Frame> Executable::Impl::takeFrame() {
  {
    std::lock_guard lock(frames_mutex);
    if (!frames.empty()) {
      std::unique_ptr<Frame> frame = std::move(frames.back());
      frames.pop_back();
      return frame;
    }
  }
  return std::make_unique<Frame>(shared);
}

void Executable::Impl::giveBack(std::unique_ptr<Frame>& frame) noexcept {
  std::lock_guard lock(frames_mutex);
  if (frames.size() < max_idle_frames)
    frames.push_back(std::move(frame));  // else it dies with the caller's pointer, after the lock
}

Result<std::vector<CallOutput>> Executable::call(std::span<const CallInput> inputs, const AllocateOutput& allocate,
                                                 StepObserver* observer, CallPlace place) {
  Impl& impl = *impl_;
  ZEFUSE_RETURN_IF_ERROR(impl.checkKinds(inputs));
  if (impl.shared.gpu)
    ZEFUSE_RETURN_IF_ERROR(impl.shared.gpu->device->lost());
  // On the stack for all but strange plans.
  constexpr size_t few = 32;
  int64_t few_symbols[few];
  std::vector<int64_t> many_symbols;
  const size_t count = impl.shared.program.plan.symbols.size();
  if (count > few)
    many_symbols.resize(count);
  int64_t* symbols = count > few ? many_symbols.data() : few_symbols;
  impl.readSymbols(inputs, symbols);
  const int threads = primitives::maxThreads();

  std::unique_ptr<Frame> frame = impl.takeFrame();
  struct GiveBack {
    Impl& impl;
    std::unique_ptr<Frame>& frame;
    ~GiveBack() { impl.giveBack(frame); }
  } give_back{impl, frame};
  const Binding* bound = frame->binding();
  if (!bound || bound->threads != threads || !std::equal(symbols, symbols + count, bound->symbols.begin())) {
    auto binding = impl.bindingFor({symbols, count}, threads);
    if (!binding.ok())
      return binding.status();
    ZEFUSE_RETURN_IF_ERROR(frame->bind(std::move(*binding)));
  }
  ZEFUSE_RETURN_IF_ERROR(impl.checkInputs(inputs, *frame->binding()));
  return frame->run(inputs, allocate, observer, place);
}

bool Executable::isBuiltWithin(std::chrono::milliseconds time) const {
  return impl_->shared.modules->isBuiltWithin(time);
}

void endBuilding() { KernelModules::endAllBuilding(); }

Status Executable::synchronize() {
  const SharedDevice* gpu = impl_->shared.gpu.get();
  if (!gpu)
    return {};
  ZEFUSE_RETURN_IF_ERROR(gpu->device->lost());
  ZEFUSE_RETURN_IF_ERROR(gpu->device->awaitStreams(gpu->deadline));
  Status first;
  std::lock_guard lock(impl_->frames_mutex);
  for (const std::unique_ptr<Frame>& frame : impl_->frames)
    if (const Status status = frame->tellEarlier(); first.ok())
      first = status;
  return first;
}

const plan::Plan& Executable::plan() const { return *plan::GetPlan(impl_->bytes.data()); }

std::span<const std::byte> Executable::planBytes() const { return impl_->bytes; }

bool Executable::hasHostSteps() const { return impl_->shared.program.host_steps; }

size_t Executable::numOutputBuffers() const { return impl_->shared.program.output_buffers.size(); }

ExecutionCounters Executable::counters() const { return impl_->shared.counters.read(); }

void Executable::timeSteps(bool on) { impl_->shared.timer.set(on, impl_->shared.program.plan.steps.size()); }

std::vector<StepTime> Executable::stepTimes() const { return impl_->shared.timer.read(); }

Result<std::vector<std::vector<std::byte>>> Executable::nativeBinaries() const {
  std::vector<size_t> all(impl_->shared.modules->size());
  std::iota(all.begin(), all.end(), size_t(0));
  ZEFUSE_RETURN_IF_ERROR(impl_->shared.modules->require(all));
  std::vector<std::vector<std::byte>> binaries;
  for (size_t i = 0; i < impl_->shared.modules->size(); ++i) {
    auto native = impl_->shared.modules->module(i).nativeBinary();
    if (!native.ok())
      return native.status();
    binaries.push_back(std::move(*native));
  }
  return binaries;
}

void Executable::invalidateWeights() {
  impl_->shared.weights.invalidate();
  if (SharedDevice* gpu = impl_->shared.gpu.get(); gpu && gpu->device->lost().ok()) {
    gpu->device->parameters().invalidate();
    gpu->resident.clear();
  }
  // Idle frames hold copies too; those in flight notice the generation at their next call.
  std::lock_guard lock(impl_->frames_mutex);
  for (auto& frame : impl_->frames)
    frame->forgetWeights();
}

size_t Executable::freeIdleMemory() {
  if (impl_->shared.gpu)
    return 0;
  std::vector<std::unique_ptr<Frame>> idle;
  {
    std::lock_guard lock(impl_->frames_mutex);
    idle.assign(std::move_iterator(impl_->frames.begin()), std::move_iterator(impl_->frames.end()));
    impl_->frames.clear();  // keeps its room
  }
  size_t bytes = 0;
  for (const std::unique_ptr<Frame>& frame : idle)
    bytes += frame->bytes();
  return bytes;
}

}  // namespace zefuse
