#include "runtime/ze/loader_trial.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <initializer_list>

#include <level_zero/ze_api.h>

using namespace zefuse::ze;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s LIBRARY\n", loader_trial_program);
    return 2;
  }
  alarm(trial_ends_after_s);
  for (int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE})
    signal(fatal, SIG_DFL);  // whoever started this wants to see the signal, not a sanitizer's report
  // _exit: a driver's destructors are no part of the question.
  const auto answer = [](const char* word, const char* detail) {
    std::printf("\n%s%s %s\n", trial_prefix, word, detail);
    std::fflush(stdout);
    _exit(0);
  };
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    answer(trial_no_library, dlerror());
  auto init = reinterpret_cast<decltype(&::zeInit)>(dlsym(library, "zeInit"));
  if (!init)
    answer(trial_no_driver, "it has no zeInit");
  const ze_result_t result = init(0);
  char text[32];
  std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(result));
  answer(result == ZE_RESULT_SUCCESS ? trial_works : trial_no_driver, text);
}
