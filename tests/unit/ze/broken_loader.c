/* A Level Zero loader whose zeInit does what BEHAVIOUR says: never returns, crashes, or finds no driver. */
#include <signal.h>
#include <unistd.h>

#include <level_zero/ze_api.h>

ZE_APIEXPORT ze_result_t ZE_APICALL zeInit(ze_init_flags_t flags) {
  (void)flags;
#if BEHAVIOUR == 0
  for (;;)
    pause();
#elif BEHAVIOUR == 1
  raise(SIGSEGV);
#endif
  return ZE_RESULT_ERROR_UNINITIALIZED;
}
