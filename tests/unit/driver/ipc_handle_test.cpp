// IPC handles that were made to mislead: whoever opens one finds nothing but what its file has.
#include "drivers/cpu/ipc_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace zefuse::cpu {
namespace {

constexpr uint64_t kPage = 4096;

class IpcHandles : public ::testing::Test {
protected:
  void SetUp() override {
    file = createSharedFile("test");
    ASSERT_GE(file, 0);
    ASSERT_EQ(0, ftruncate(file, 4 * kPage));
  }
  void TearDown() override { close(file); }

  ze_result_t open(int of, IpcPart part) {
    char handle[ZE_MAX_IPC_HANDLE_SIZE];
    makeIpcHandle(IpcKind::memory, of, part, handle);
    int opened = -1;
    IpcPart found;
    const ze_result_t result = openIpcHandle("open", IpcKind::memory, handle, opened, found);
    if (result == ZE_RESULT_SUCCESS)
      close(opened);
    return result;
  }

  int file = -1;
};

TEST_F(IpcHandles, NamePartsThatTheFileHas) {
  EXPECT_EQ(ZE_RESULT_SUCCESS, open(file, {0, 4 * kPage, 0, 0}));
  EXPECT_EQ(ZE_RESULT_SUCCESS, open(file, {3 * kPage, 17, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {0, 0, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {0, 4 * kPage + 1, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {kPage, 4 * kPage, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {100, 17, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {UINT64_MAX - kPage + 1, 2 * kPage, 0, 0}));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(file, {0, UINT64_MAX, 0, 0}));
}

TEST_F(IpcHandles, NameFilesThatCannotShrink) {
  EXPECT_NE(0, ftruncate(file, kPage));
  EXPECT_EQ(EPERM, errno);
  const int open_ended = memfd_create("open-ended", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(0, ftruncate(open_ended, kPage));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(open_ended, {0, kPage, 0, 0}));
  close(open_ended);
}

TEST_F(IpcHandles, NameMemoryFiles) {
  int ends[2];
  ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(ends[0], {0, kPage, 0, 0}));
  close(ends[0]);
  close(ends[1]);
  const int executable = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(executable, {0, kPage, 0, 0}));
  close(executable);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, open(executable, {0, kPage, 0, 0}));  // closed
}

}  // namespace
}  // namespace zefuse::cpu
