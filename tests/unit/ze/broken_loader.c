/* A Level Zero loader whose zeInit does what BEHAVIOUR says: never returns, crashes, or finds no driver. */
#include <signal.h>
#include <unistd.h>

__attribute__((visibility("default"))) int zeInit(unsigned flags) {
  (void)flags;
#if BEHAVIOUR == 0
  for (;;)
    pause();
#elif BEHAVIOUR == 1
  raise(SIGSEGV);
#endif
  return 0x78000001;
}
