// Immediate lists: closing and resetting them, and regular lists that run there.
#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {
namespace {

using Lists = EveryList;

TEST_P(Lists, AreClosedAndResetWhetherTheyRecordOrNot) {
  auto* value = allocate<int>(2);
  value[0] = 3;
  value[1] = 0;
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandListReset(list));
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 1, value, sizeof(int), nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(3, value[1]);
}

TEST_F(ZeTest, AnImmediateListThatWasClosedStillRuns) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  auto* value = allocate<int>(2);
  value[0] = 3;
  value[1] = 0;
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 1, value, sizeof(int), nullptr, 0, nullptr));
  EXPECT_EQ(3, value[1]);
}

INSTANTIATE_TEST_SUITE_P(Each, Lists,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode,
                                           ListKind::regular),
                         [](const auto& info) { return nameOf(info.param); });

// Lists appended to an immediate one. The function is newer than the tables of Debian's loader.
class AppendedLists : public OnEveryList<ZeTest> {
protected:
  void SetUp() override {
    OnEveryList<ZeTest>::SetUp();
    if (IsSkipped())
      return;
    if (loaderWrapsHandles())
      GTEST_SKIP() << "an extension's function gets the driver's handles";
    void* address = nullptr;
    ZE_OK(zeDriverGetExtensionFunctionAddress(driver, "zeCommandListImmediateAppendCommandListsExp", &address));
    append = reinterpret_cast<Append>(address);
    value = allocate<int>(4);
    value[0] = 1;
    value[1] = value[2] = value[3] = 0;
  }
  // A closed list that copies value[from] to the next.
  ze_command_list_handle_t copyOn(int from, ze_event_handle_t wait = nullptr) {
    auto made = regularList();
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListAppendMemoryCopy(made, value + from + 1, value + from, sizeof(int),
                                                               nullptr, wait ? 1 : 0, wait ? &wait : nullptr));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListClose(made));
    return made;
  }

  using Append = ze_result_t (*)(ze_command_list_handle_t, uint32_t, ze_command_list_handle_t*, ze_event_handle_t,
                                 uint32_t, ze_event_handle_t*);
  Append append = nullptr;
  int* value = nullptr;
};

TEST_P(AppendedLists, RunInTheirOrder) {
  ze_command_list_handle_t lists[] = {copyOn(0), copyOn(1), copyOn(2)};
  for (int run = 1; run < 3; ++run) {
    value[0] = run;
    ZE_OK(append(list, 3, lists, nullptr, 0, nullptr));
    finish();
    EXPECT_EQ(run, value[3]);
  }
}

TEST_P(AppendedLists, RunBetweenTheirEvents) {
  ze_command_list_handle_t lists[] = {copyOn(0), copyOn(1), copyOn(2)};
  auto events = pool(2);
  auto go = event(events, 0), done = event(events, 1);
  const bool waits = GetParam() != ListKind::synchronous;  // which would wait in the call
  if (!waits)
    ZE_OK(zeEventHostSignal(go));
  ZE_OK(append(list, 3, lists, done, 1, &go));
  if (waits) {
    EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done, 2'000'000));
    EXPECT_EQ(0, value[1]);
    ZE_OK(zeEventHostSignal(go));
  }
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(1, value[3]);
}

TEST_P(AppendedLists, ThatWaitDoNotHoldUpTheCall) {
  if (GetParam() == ListKind::synchronous)
    GTEST_SKIP() << "such a list waits in the call";
  auto go = event();
  auto waiting = copyOn(0, go);
  ZE_OK(append(list, 1, &waiting, nullptr, 0, nullptr));
  ZE_OK(zeEventHostSignal(go));
  finish();
  EXPECT_EQ(1, value[1]);
}

TEST_P(AppendedLists, MustBeClosedAndRegular) {
  auto regular = regularList();
  auto closed = copyOn(0);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, append(list, 1, &regular, nullptr, 0, nullptr)) << "open";
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, append(list, 1, &list, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, append(regular, 1, &closed, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, append(list, 1, nullptr, nullptr, 0, nullptr));
}

INSTANTIATE_TEST_SUITE_P(Each, AppendedLists,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace zefuse::test
