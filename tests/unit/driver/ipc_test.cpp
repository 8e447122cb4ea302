// Memory and events of one process in another: this program started again as a peer, which answers over a socket.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {
namespace {

constexpr char kSocketVariable[] = "ZEFUSE_TEST_IPC_SOCKET";
constexpr uint64_t kPatience = 20'000'000'000;  // ns

// A wish for a free address: the validation layer of loader 1.8.12 takes null for an error.
const auto* const kAnywhere = reinterpret_cast<const void*>(uintptr_t{1} << 44);

struct Message {
  char what;  // 'm': check and change memory, 'e': wait for event 0 and signal event 1, 'f': a command that fails
  bool with_descriptor;
  uint32_t value;
  uint64_t count;  // of values
  char handle[ZE_MAX_IPC_HANDLE_SIZE];
};

// With the descriptor in the handle's first bytes, where the message says so; the receiver gets its own number there.
void sendMessage(int socket, const Message& message) {
  iovec bytes = {const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (message.with_descriptor) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), message.handle, sizeof(int));
  }
  ASSERT_EQ(ssize_t(sizeof message), sendmsg(socket, &header, 0));
}

bool receiveMessage(int socket, Message& message) {
  iovec bytes = {&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  if (recvmsg(socket, &header, 0) != ssize_t(sizeof message))
    return false;
  if (message.with_descriptor)
    std::memcpy(message.handle, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
  return true;
}

class Ipc : public ZeTest {
protected:
  void SetUp() override {
    ZeTest::SetUp();
    ze_driver_ipc_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES;
    ZE_OK(zeDriverGetIpcProperties(driver, &properties));
    if (properties.flags != (ZE_IPC_PROPERTY_FLAG_MEMORY | ZE_IPC_PROPERTY_FLAG_EVENT_POOL))
      GTEST_SKIP() << "this driver shares nothing between processes";
    list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  }
  void TearDown() override {
    for (void* pointer : memory_)
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemFree(context, pointer));
    if (peer_ > 0) {
      close(socket_);
      int status = 0;
      EXPECT_EQ(peer_, waitpid(peer_, &status, 0));
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    ZeTest::TearDown();
  }

  uint32_t* onDevice(size_t count) {
    ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    void* pointer = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocDevice(context, &desc, count * 4, 0, device, &pointer));
    memory_.push_back(pointer);
    return static_cast<uint32_t*>(pointer);
  }
  void fill(uint32_t* memory, uint32_t value, size_t count) {
    ZE_OK(zeCommandListAppendMemoryFill(list, memory, &value, sizeof value, count * 4, nullptr, 0, nullptr));
  }
  // Whether all are `value`, read by the device.
  bool holds(const uint32_t* memory, uint32_t value, size_t count) {
    auto* copy = allocate<uint32_t>(count);
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListAppendMemoryCopy(list, copy, memory, count * 4, nullptr, 0, nullptr));
    return std::all_of(copy, copy + count, [&](uint32_t each) { return each == value; });
  }

  void startPeer() {
    int ends[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    peer_ = fork();
    if (peer_ == 0) {
      close(ends[0]);
      setenv(kSocketVariable, std::to_string(ends[1]).c_str(), 1);
      execl("/proc/self/exe", "peer", "--gtest_filter=Ipc.ThePeerAnswers", "--gtest_brief=1", nullptr);
      _exit(99);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    socket_ = ends[0];
  }
  uint32_t ask(const Message& message) {
    sendMessage(socket_, message);
    uint32_t answer = ~0u;
    EXPECT_EQ(ssize_t(sizeof answer), recv(socket_, &answer, sizeof answer, 0));
    return answer;
  }

  // The peer's side.
  uint32_t answer(const Message& message) {
    if (message.what == 'm') {
      ze_ipc_mem_handle_t handle;
      std::memcpy(handle.data, message.handle, sizeof handle.data);
      void* opened = nullptr;
      if (ze_result_t result = zeMemOpenIpcHandle(context, device, handle, 0, &opened))
        return result;
      auto* memory = static_cast<uint32_t*>(opened);
      const bool right = holds(memory, message.value, message.count);
      fill(memory, message.value + 1, message.count);
      const ze_result_t closed = zeMemCloseIpcHandle(context, opened);
      return right ? closed : 1;
    }
    ze_ipc_event_pool_handle_t handle;
    std::memcpy(handle.data, message.handle, sizeof handle.data);
    ze_event_pool_handle_t pool = nullptr;
    if (ze_result_t result = zeEventPoolOpenIpcHandle(context, handle, &pool))
      return result;
    ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, ZE_EVENT_SCOPE_FLAG_HOST,
                            ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t first = nullptr, second = nullptr;
    ze_result_t result = zeEventCreate(pool, &desc, &first);
    desc.index = 1;
    result = result ? result : zeEventCreate(pool, &desc, &second);
    result = result ? result : zeEventHostSynchronize(first, kPatience);
    if (!result && message.what == 'e')
      result = zeCommandListAppendBarrier(list, second, 0, nullptr);
    if (!result && message.what == 'f') {  // more groups than can be counted, known only when it runs
      ze_kernel_handle_t kernel = this->kernel(module(), "increment");
      setPointer(kernel, 0, allocate<uint32_t>(1));
      auto* groups = allocate<ze_group_count_t>(1);
      *groups = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
      result = zeCommandListAppendLaunchKernelIndirect(list, kernel, groups, second, 0, nullptr) ? ZE_RESULT_SUCCESS
                                                                                                 : ZE_RESULT_NOT_READY;
    }
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventDestroy(first));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventDestroy(second));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventPoolCloseIpcHandle(pool));
    return result;
  }

  ze_command_list_handle_t list = nullptr;
  int socket_ = -1;

private:
  std::vector<void*> memory_;
  pid_t peer_ = -1;
};

TEST_F(Ipc, ThePeerAnswers) {
  const char* socket = std::getenv(kSocketVariable);
  if (!socket)
    GTEST_SKIP() << "started by the other tests";
  Message message;
  while (receiveMessage(std::atoi(socket), message)) {
    const uint32_t result = answer(message);
    ASSERT_EQ(ssize_t(sizeof result), send(std::atoi(socket), &result, sizeof result, 0));
  }
}

TEST_F(Ipc, MemoryIsReadAndWrittenByAnotherProcess) {
  startPeer();
  for (bool with_descriptor : {false, true})
    for (size_t count : {1, 1000, 300000}) {
      SCOPED_TRACE(testing::Message() << count << " " << with_descriptor);
      uint32_t* other = onDevice(10);
      uint32_t* memory = onDevice(count);
      fill(other, 5, 10);
      fill(memory, 77, count);
      ze_ipc_mem_handle_t handle;
      ZE_OK(zeMemGetIpcHandle(context, memory, &handle));
      Message message = {'m', with_descriptor, 77, count, {}};
      std::memcpy(message.handle, handle.data, sizeof handle.data);
      EXPECT_EQ(uint32_t(ZE_RESULT_SUCCESS), ask(message));
      EXPECT_TRUE(holds(memory, 78, count));
      EXPECT_TRUE(holds(other, 5, 10));
    }
}

TEST_F(Ipc, MappedPhysicalMemoryIsReadAndWrittenByAnotherProcess) {
  startPeer();
  size_t page = 0;
  ZE_OK(zeVirtualMemQueryPageSize(context, device, 1, &page));
  void* range = nullptr;
  ZE_OK(zeVirtualMemReserve(context, kAnywhere, 4 * page, &range));
  auto* base = static_cast<std::byte*>(range);
  ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, 3 * page};
  ze_physical_mem_handle_t physical = nullptr;
  ZE_OK(zePhysicalMemCreate(context, device, &desc, &physical));
  ZE_OK(zeVirtualMemMap(context, base + page, 3 * page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
  ZE_OK(zeVirtualMemUnmap(context, base + 2 * page, page));  // what is left is two mappings
  ZE_OK(zePhysicalMemDestroy(context, physical));
  auto* last = reinterpret_cast<uint32_t*>(base + 3 * page);
  const size_t count = page / sizeof *last;
  fill(last, 77, count);
  ze_ipc_mem_handle_t handle;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(context, base, &handle)) << "nothing is mapped there";
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(context, last + 1, &handle)) << "no beginning";
  ZE_OK(zeMemGetIpcHandle(context, last, &handle));
  Message message = {'m', false, 77, count, {}};
  std::memcpy(message.handle, handle.data, sizeof handle.data);
  EXPECT_EQ(uint32_t(ZE_RESULT_SUCCESS), ask(message));
  EXPECT_TRUE(holds(last, 78, count));
  ZE_OK(zeVirtualMemFree(context, base, 4 * page));
}

TEST_F(Ipc, PhysicalMemoryIsSharedByItsHandle) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "an extension's function gets the driver's handles";
  using Get = ze_result_t (*)(ze_context_handle_t, const void*, const void*, ze_ipc_mem_handle_t*);
  void* address = nullptr;
  ZE_OK(zeDriverGetExtensionFunctionAddress(driver, "zeMemGetIpcHandleWithProperties", &address));
  const auto get = reinterpret_cast<Get>(address);
  size_t page = 0;
  ZE_OK(zeVirtualMemQueryPageSize(context, device, 1, &page));
  ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, page};
  ze_physical_mem_handle_t physical = nullptr;
  ZE_OK(zePhysicalMemCreate(context, device, &desc, &physical));
  struct {
    ze_structure_type_t stype;
    const void* pNext;
    uint32_t flags;
  } type = {static_cast<ze_structure_type_t>(0x0002003D), nullptr, ZE_BIT(1)};
  ze_ipc_mem_handle_t handle;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, get(context, physical, &type, &handle)) << "across a fabric";
  type.flags = ZE_BIT(0);
  ZE_OK(get(context, physical, &type, &handle));
  void *opened = nullptr, *range = nullptr;
  ZE_OK(zeMemOpenIpcHandle(context, device, handle, 0, &opened));
  fill(static_cast<uint32_t*>(opened), 9, 4);
  ZE_OK(zeVirtualMemReserve(context, kAnywhere, page, &range));
  ZE_OK(zeVirtualMemMap(context, range, page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
  EXPECT_TRUE(holds(static_cast<uint32_t*>(range), 9, 4));
  ZE_OK(zeMemCloseIpcHandle(context, opened));
  ZE_OK(zeVirtualMemFree(context, range, page));
  ZE_OK(zePhysicalMemDestroy(context, physical));
}

TEST_F(Ipc, EventsAreWaitedForAndSignalledByAnotherProcess) {
  startPeer();
  for (bool with_descriptor : {false, true}) {
    ze_event_pool_handle_t shared = pool(2, ZE_EVENT_POOL_FLAG_IPC | ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    ze_event_handle_t first = event(shared, 0), second = event(shared, 1);
    ze_ipc_event_pool_handle_t handle;
    ZE_OK(zeEventPoolGetIpcHandle(shared, &handle));
    Message message = {'e', with_descriptor, 0, 0, {}};
    std::memcpy(message.handle, handle.data, sizeof handle.data);
    sendMessage(socket_, message);
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(second, 50'000'000));
    const auto signalled = std::chrono::steady_clock::now();
    ZE_OK(zeEventHostSignal(first));
    // Waited for here and by a queue's thread.
    ze_command_list_handle_t waiting = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    ze_event_handle_t last = event();
    ZE_OK(zeCommandListAppendBarrier(waiting, last, 1, &second));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventHostSynchronize(second, kPatience));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventHostSynchronize(last, kPatience));
    uint32_t answer = ~0u;
    EXPECT_EQ(ssize_t(sizeof answer), recv(socket_, &answer, sizeof answer, 0));
    EXPECT_EQ(0u, answer);
    // Both were woken: a wait that only looks when its time is over would end well, too.
    EXPECT_LT(std::chrono::steady_clock::now() - signalled, std::chrono::nanoseconds(kPatience / 2));
    ZE_OK(zeEventHostReset(second));
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(second));
  }
}

TEST_F(Ipc, AFailureIsToldInTheOtherProcess) {
  startPeer();
  ze_event_pool_handle_t shared = pool(2, ZE_EVENT_POOL_FLAG_IPC | ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
  ze_event_handle_t first = event(shared, 0), second = event(shared, 1);
  ze_ipc_event_pool_handle_t handle;
  ZE_OK(zeEventPoolGetIpcHandle(shared, &handle));
  Message message = {'f', false, 0, 0, {}};
  std::memcpy(message.handle, handle.data, sizeof handle.data);
  ZE_OK(zeEventHostSignal(first));
  EXPECT_EQ(0u, ask(message));
  EXPECT_EQ(ZE_RESULT_ERROR_UNKNOWN, zeEventHostSynchronize(second, kPatience));
  EXPECT_EQ(ZE_RESULT_ERROR_UNKNOWN, zeEventQueryStatus(second));
  ZE_OK(zeEventHostReset(second));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(second));
  ZE_OK(zeEventHostSignal(second));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventQueryStatus(second));
}

TEST_F(Ipc, OneProcessMayOpenItsOwn) {
  uint32_t* memory = onDevice(4);
  fill(memory, 3, 4);
  ze_ipc_mem_handle_t handle;
  ZE_OK(zeMemGetIpcHandle(context, memory, &handle));
  void *a = nullptr, *b = nullptr;
  ZE_OK(zeMemOpenIpcHandle(context, device, handle, 0, &a));
  ZE_OK(zeMemOpenIpcHandle(context, device, handle, ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED, &b));
  EXPECT_NE(a, b);
  EXPECT_NE(a, memory);
  fill(static_cast<uint32_t*>(a), 9, 4);
  EXPECT_TRUE(holds(memory, 9, 4));
  EXPECT_TRUE(holds(static_cast<uint32_t*>(b), 9, 4));
  ze_memory_allocation_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  ZE_OK(zeMemGetAllocProperties(context, b, &properties, nullptr));
  EXPECT_EQ(ZE_MEMORY_TYPE_DEVICE, properties.type);
  ZE_OK(zeMemCloseIpcHandle(context, a));
  ZE_OK(zeMemCloseIpcHandle(context, b));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(context, b));
  EXPECT_TRUE(holds(memory, 9, 4));

  ze_event_pool_handle_t shared = pool(1, ZE_EVENT_POOL_FLAG_IPC), opened = nullptr;
  ze_event_handle_t made = event(shared);
  ze_ipc_event_pool_handle_t pool_handle;
  ZE_OK(zeEventPoolGetIpcHandle(shared, &pool_handle));
  ZE_OK(zeEventHostSignal(made));
  ZE_OK(zeEventPoolOpenIpcHandle(context, pool_handle, &opened));
  ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t same = nullptr;
  ZE_OK(zeEventCreate(opened, &desc, &same));
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventQueryStatus(same));
  ZE_OK(zeEventHostReset(same));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(made));
  ZE_OK(zeEventDestroy(same));
  ZE_OK(zeEventPoolCloseIpcHandle(opened));
}

TEST_F(Ipc, WhatIsNotSharedIsRefused) {
  ze_ipc_mem_handle_t handle;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(context, allocate(64), &handle));
  int local = 0;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemGetIpcHandle(context, &local, &handle));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(context, onDevice(1)));
  ze_ipc_event_pool_handle_t pool_handle;
  ze_event_pool_handle_t alone = pool(1);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolGetIpcHandle(alone, &pool_handle));
  if (!loaderWrapsHandles())
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolCloseIpcHandle(alone));
}

TEST_F(Ipc, DamagedHandlesAreRefused) {
  ze_ipc_mem_handle_t good;
  ZE_OK(zeMemGetIpcHandle(context, onDevice(100), &good));
  void* opened = nullptr;
  std::mt19937 random(5);
  for (size_t byte = sizeof(int); byte < sizeof good.data; ++byte)  // the descriptor is looked at afterwards
    for (int bit = 0; bit < 8; ++bit) {
      ze_ipc_mem_handle_t damaged = good;
      damaged.data[byte] ^= static_cast<char>(1 << bit);
      EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemOpenIpcHandle(context, device, damaged, 0, &opened)) << byte;
      EXPECT_EQ(nullptr, opened);
    }
  ze_ipc_mem_handle_t noise = {};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemOpenIpcHandle(context, device, noise, 0, &opened));
  for (int i = 0; i < 1000; ++i) {
    for (char& byte : noise.data)
      byte = static_cast<char>(random());
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemOpenIpcHandle(context, device, noise, 0, &opened));
  }
  // Descriptors that are none, or something else's; the file is found by its process and number alone.
  for (int descriptor : {-1, 0, 1, 2, 1 << 30}) {
    ze_ipc_mem_handle_t other = good;
    std::memcpy(other.data, &descriptor, sizeof descriptor);
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemOpenIpcHandle(context, device, other, 0, &opened)) << descriptor;
  }
  ze_ipc_event_pool_handle_t as_pool;
  std::memcpy(as_pool.data, good.data, sizeof good.data);
  ze_event_pool_handle_t pool_opened = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolOpenIpcHandle(context, as_pool, &pool_opened));

  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_IPC, 3};
  ze_event_pool_handle_t gone = nullptr;
  ZE_OK(zeEventPoolCreate(context, &desc, 0, nullptr, &gone));
  ZE_OK(zeEventPoolGetIpcHandle(gone, &as_pool));
  ZE_OK(zeEventPoolDestroy(gone));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolOpenIpcHandle(context, as_pool, &pool_opened));
}

}  // namespace
}  // namespace zefuse::test
