/* zefuse.h alone, as a C program meets it. */
#include "runtime/capi/zefuse.h"

#include <stdio.h>
#include <string.h>

int main(void) {
  zefuse_model* model = NULL;
  zefuse_load_options options = {sizeof options, "cpu", NULL, ZEFUSE_CHECK_AT_LOAD, 0, ZEFUSE_JIT_NEVER, 0, NULL, NULL,
                                 NULL,           NULL,  0};
  zefuse_status status = zefuse_model_load_file("/no/such/file.zefuse", &options, &model);
  printf("%s: %s\n", zefuse_status_name(status), zefuse_error_message());
  zefuse_model_release(model);
  return status == ZEFUSE_NOT_FOUND && model == NULL && strstr(zefuse_error_message(), "/no/such/file.zefuse") &&
                 zefuse_abi_version() == ZEFUSE_ABI_VERSION
             ? 0
             : 1;
}
