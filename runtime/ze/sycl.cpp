#include "runtime/ze/sycl.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "common/toolchain/companion.h"

namespace zefuse::ze {
namespace {

constexpr size_t most_turns = 256;  // of a queue, that may be on their way

using Text = char[512];

Status failed(const Device& device, const char* what, const Text& why) {
  return {Code::device, std::string("SYCL ") + what + " of device '" + device.name + "': " + why};
}

// The number of the SYCL runtime that this process has, as in libsycl.so.8; empty: none.
std::string runtimesNumber() {
  std::string number;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        const std::string_view path = info->dlpi_name ? info->dlpi_name : "";
        const std::string_view name = path.substr(path.rfind('/') + 1);
        constexpr std::string_view begin = "libsycl.so.";
        if (!name.starts_with(begin))
          return 0;
        *static_cast<std::string*>(into) = name.substr(begin.size(), name.find('.', begin.size()) - begin.size());
        return 1;
      },
      &number);
  return number;
}

Result<std::string> pathOfLibrary() {
  if (const char* path = std::getenv(kSyclVariable); path && *path)
    return std::string(path);
  const std::string number = runtimesNumber();
  if (number.empty())
    return Status{Code::not_found, "tensors of torch.xpu need SYCL's runtime, and this process has no libsycl.so: is "
                                   "this torch one with XPU?"};
  return companionProgram(("libzefuse_sycl-" + number + ".so").c_str());
}

Result<const Sycl*> loadSycl() {
  const Result<std::string> path = pathOfLibrary();
  if (!path.ok())
    return path.status();
  void* library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const std::string reason = dlerror();
    return Status{Code::not_found, "tensors of torch.xpu need " + *path +
                                       ", which is built where the headers of the SYCL runtime of this number are "
                                       "(docs/gpu.md), or the file that " +
                                       kSyclVariable + " names: " + reason};
  }
  const auto functions_of =
      reinterpret_cast<ze_extension::SyclFunctionsOf>(dlsym(library, ze_extension::sycl_functions_name));
  const ze_extension::SyclFunctions* functions = functions_of ? functions_of(ze_extension::sycl_interface) : nullptr;
  if (!functions)
    return Status{Code::damaged, *path + " is another zefuse's; install zefuse again"};
  return new Sycl{*functions};  // for the rest of the process
}

struct Adopted {
  std::mutex mutex;
  std::map<std::string, Device, std::less<>> devices;

  static Adopted& instance() {
    static auto& made = *new Adopted;  // graphs may outlive static objects
    return made;
  }
};

}  // namespace

Result<const Sycl*> Sycl::load() {
  static const Result<const Sycl*> loaded = loadSycl();
  return loaded;
}

Status adoptSyclQueue(const std::string& name, void* address) {
  Adopted& adopted = Adopted::instance();
  {
    const std::lock_guard lock(adopted.mutex);
    if (adopted.devices.contains(name))
      return {};
  }
  Result<const Sycl*> sycl = Sycl::load();
  if (!sycl.ok())
    return sycl.status();
  ze_extension::SyclHandles handles{};
  Text why = "";
  if ((*sycl)->adopt(address, &handles, why, sizeof why) != 0)
    return {Code::device, "the queue of device '" + name + "' is none that zefuse could use: " + why};
  Result<Device> device = Device::of(handles.device);
  if (!device.ok())
    return {device.status().code(), "device '" + name + "': " + device.status().message()};
  device->name = name;
  device->context = handles.context;
  device->sycl = *sycl;
  const std::lock_guard lock(adopted.mutex);
  adopted.devices.try_emplace(name, std::move(*device));
  return {};
}

std::optional<Device> adoptedDevice(const std::string& name) {
  Adopted& adopted = Adopted::instance();
  const std::lock_guard lock(adopted.mutex);
  const auto found = adopted.devices.find(name);
  return found == adopted.devices.end() ? std::nullopt : std::optional(found->second);
}

Result<void*> syclQueueOf(const Context& context, void* address) {
  const Device& device = context.device();
  ze_extension::SyclHandles handles{};
  Text why = "";
  if (device.sycl->adopt(address, &handles, why, sizeof why) != 0)
    return failed(device, "cannot tell the native handles of a queue", why);
  if (handles.context != device.context || handles.device != device.handle)
    return Status{Code::invalid_argument, "the stream's queue is of another SYCL context or device than those that '" +
                                              device.name +
                                              "' had first: memory of one cannot be reached from the other"};
  return static_cast<void*>(handles.queue);
}

Status awaitSyclQueue(const Context& context, void* queue, uint64_t nanoseconds) {
  const Device& device = context.device();
  ze_extension::SyclMark* mark = nullptr;
  ze_event_handle_t event = nullptr;
  Text why = "";
  if (device.sycl->before(static_cast<ze_extension::SyclQueue*>(queue), &mark, &event, why, sizeof why) != 0)
    return failed(device, "cannot wait for a queue", why);
  const Status status =
      event ? waited(context, "zeEventHostSynchronize", context.api().zeEventHostSynchronize(event, nanoseconds),
                     "a queue did not end its work", nanoseconds)
            : Status();
  device.sycl->release(mark);
  return status;
}

bool SyclOrder::isFree(Turn& turn) {
  if (turn.after && !sycl().ended(turn.after))
    return false;
  for (ze_extension::SyclMark** mark : {&turn.before, &turn.after})
    if (*mark)
      sycl().release(std::exchange(*mark, nullptr));
  return true;
}

Result<SyclOrder::Turn*> SyclOrder::freeTurn() {
  if (turns_.size() == most_turns && !isFree(*turns_[next_])) {
    ZEFUSE_RETURN_IF_ERROR(turns_[next_]->done.wait(UINT64_MAX));
    ZEFUSE_RETURN_IF_ERROR(awaitSyclQueue(*context_, queue_, UINT64_MAX));
  }
  if (turns_.empty() || !isFree(*turns_[next_])) {
    if (turns_.size() == most_turns)
      return Status{Code::internal, "a queue of SYCL's that has ended its work has not"};
    auto turn = std::make_unique<Turn>();
    Result<EventPool> pool = EventPool::create(*context_, 1);
    if (!pool.ok())
      return pool.status();
    turn->pool = std::move(*pool);
    Result<Event> done = Event::create(turn->pool, 0);
    if (!done.ok())
      return done.status();
    turn->done = std::move(*done);
    turns_.insert(turns_.begin() + ptrdiff_t(next_), std::move(turn));
  }
  Turn* turn = turns_[next_].get();
  ZEFUSE_RETURN_IF_ERROR(turn->done.reset());
  return turn;
}

Status SyclOrder::enter(CommandList& list) {
  if (!entered_) {  // else a call failed, and was waited for
    Result<Turn*> turn = freeTurn();
    if (!turn.ok())
      return turn.status();
    entered_ = *turn;
  } else if (entered_->before) {
    sycl().release(std::exchange(entered_->before, nullptr));
  }
  Text why = "";
  ze_event_handle_t event = nullptr;
  if (sycl().before(queue_, &entered_->before, &event, why, sizeof why) != 0)
    return failed(context_->device(), "cannot tell when a queue ends its work", why);
  return event ? list.barrier(nullptr, event) : Status();
}

Status SyclOrder::leave(CommandList& list) {
  Text why = "";
  ZEFUSE_RETURN_IF_ERROR(list.barrier(&entered_->done));
  if (sycl().after(queue_, entered_->done.handle(), &entered_->after, why, sizeof why) != 0)
    return failed(context_->device(), "cannot let a queue wait", why);
  entered_ = nullptr;
  next_ = (next_ + 1) % turns_.size();
  return {};
}

Status SyclOrder::wait(CommandList& list, uint64_t nanoseconds) {
  if (entered_) {
    ZEFUSE_RETURN_IF_ERROR(entered_->done.reset());
    ZEFUSE_RETURN_IF_ERROR(list.barrier(&entered_->done));
    return entered_->done.wait(nanoseconds);
  }
  for (const std::unique_ptr<Turn>& turn : turns_)
    if (turn->after)
      ZEFUSE_RETURN_IF_ERROR(turn->done.wait(nanoseconds));
  return {};
}

SyclOrder::~SyclOrder() {
  for (std::unique_ptr<Turn>& turn : turns_)
    if (!isFree(*turn))
      (void)turn.release();  // something waits for its event: never freed
}

}  // namespace zefuse::ze
